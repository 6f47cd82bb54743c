"""The voice's process: commands in, sound out, over real pipes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import BinaryIO

from headstart.gateway.tts import worker
from headstart.gateway.tts.messages import (
    ClauseDone,
    Speak,
    Stop,
    SynthesisedAudio,
    Unpacker,
    VoiceEvent,
    pack,
)
from tests.gateway.tts.voices import Beeps


def run_all(*commands: Speak | Stop | None) -> list[VoiceEvent]:
    queue: worker.Commands = worker.Commands()
    for command in commands:
        queue.put(command)
    sink = io.BytesIO()
    worker.run(Beeps(), queue, sink)
    events: list[VoiceEvent] = Unpacker(VoiceEvent).feed(sink.getvalue())
    return events


def test_commands_are_looked_at_before_sound_is_made() -> None:
    """A stop that is already there is obeyed before another piece."""
    assert run_all(Speak("a", 1, 0, "one two"), Stop("a", 1), None) == []


def test_the_pipe_is_read_to_its_end() -> None:
    """Whole commands come out, then the end."""
    source, sink = os.pipe()
    os.write(sink, pack(Speak("a", 1, 0, "x")) + pack(Stop("a")))
    os.close(sink)
    commands: worker.Commands = worker.Commands()
    reader: BinaryIO = os.fdopen(source, "rb")
    with reader:
        worker.read(reader, commands)
    assert [commands.get() for _ in range(3)] == [Speak("a", 1, 0, "x"), Stop("a"), None]


def test_a_voice_that_cannot_be_had_ends_with_code_2() -> None:
    """So that nobody starts it again."""
    argv = [sys.executable, "-m", "headstart.gateway.tts.worker", "joe", "/nowhere"]
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == worker.EXIT_UNAVAILABLE
    assert b"nowhere" in ended.stderr


def test_espeak_speaks_through_the_pipe() -> None:
    """A real voice in a real process: a second or so of sound, and it ends with its stdin."""
    argv = [sys.executable, "-m", "headstart.gateway.tts.worker", "espeak"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        unpacker, events = Unpacker(VoiceEvent), list[VoiceEvent]()
        process.stdin.write(pack(Speak("a", 1, 0, "The capital of France is Paris.")))
        process.stdin.flush()
        while not any(isinstance(event, ClauseDone) for event in events):
            data = os.read(process.stdout.fileno(), 65_536)
            assert data
            events += unpacker.feed(data)
        process.stdin.close()
        assert process.wait(60) == 0
    assert 24_000 < sum(e.samples for e in events if isinstance(e, SynthesisedAudio)) < 72_000
