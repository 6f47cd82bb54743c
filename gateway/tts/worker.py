"""The TTS worker process: commands on stdin, audio on stdout, log on stderr.

`python -m gateway.tts.worker joe FOLDER`. One thread reads, the other one synthesises and checks
for commands between two pieces, so that a stop takes at most one piece (50 to 150 ms). This is not
visible outside: the gateway drops what arrives after its `Stop`. Ends when stdin does.

"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from headstart.gateway.runtime import log_lines
from headstart.gateway.tts.messages import (
    Loaded,
    Prepare,
    Speak,
    Stop,
    Unpacker,
    VoiceCommand,
    VoiceEvent,
    VoiceMessage,
    pack,
)
from headstart.gateway.tts.scheduler import TtsScheduler
from headstart.gateway.tts.synthesiser import Synthesiser, VoiceUnavailable
from headstart.gateway.tts.voices import load

log = logging.getLogger("headstart.voice.worker")

EXIT_UNAVAILABLE = 2
READ_BYTES = 65_536
COMMANDS_MAX = 8192
"""Commands read and not yet processed. When it is full, reading waits, and so does the gateway's
pipe."""
WARM_UP = "Hello there, how are you?"

Commands = queue.Queue[VoiceCommand | None]


def read(source: BinaryIO, commands: Commands) -> None:
    """Read commands from the pipe until it ends; then put None."""
    unpacker = Unpacker(VoiceCommand)
    try:
        while data := os.read(source.fileno(), READ_BYTES):
            for command in unpacker.feed(data):
                commands.put(command)
    finally:
        commands.put(None)


def run(voice: Synthesiser, commands: Commands, sink: BinaryIO) -> None:
    """Synthesise until there are no more commands."""
    scheduler = TtsScheduler(voice)

    def send(event: VoiceEvent) -> None:
        sink.write(pack(event))
        sink.flush()

    while True:
        wait_s = scheduler.next_s(time.monotonic())
        try:
            command = commands.get(block=wait_s != 0, timeout=wait_s or None)
        except queue.Empty:
            if scheduler.next_s(time.monotonic()) == 0:
                event = scheduler.work(time.monotonic())
                if event is not None:
                    send(event)
            continue
        match command:
            case None:
                return
            case Speak():
                refusal = scheduler.ask(command)
                if refusal is not None:
                    send(refusal)
            case Prepare():
                scheduler.prepare(command)
            case Stop():
                scheduler.stop(command.session, command.generation)


def main(arguments: list[str] | None = None) -> int:
    """The process. Exit code 0: the gateway has gone; 2: this voice is not available."""
    parser = argparse.ArgumentParser(prog="headstart.gateway.tts.worker")
    parser.add_argument("voice")
    parser.add_argument("folder", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    log_lines.set_up("INFO", "%(message)s")
    # Libraries may print: only messages may reach the pipe.
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    began_s = time.monotonic()
    try:
        voice = load(options.voice, options.folder)
    except VoiceUnavailable as error:
        log.error("%s", error)
        return EXIT_UNAVAILABLE
    for _ in voice.speak(WARM_UP, 1.0):
        pass  # a model's first run takes longer than later ones
    loaded: VoiceMessage = Loaded(voice.name, time.monotonic() - began_s)
    pipe.write(pack(loaded))
    pipe.flush()
    commands: Commands = queue.Queue(COMMANDS_MAX)
    threading.Thread(target=read, args=(sys.stdin.buffer, commands), daemon=True).start()
    try:
        run(voice, commands, pipe)
    except BrokenPipeError:
        log.info("the gateway is gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
