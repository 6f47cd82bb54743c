"""The `headstart talk` command: opens files, a server and an output; returns an exit code."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headstart.gateway.errors import PortInUse, ServerFailed, ServerUnreachable
from headstart.gateway.runtime import tasks
from headstart.talk.client import TalkOptions, talk
from headstart.talk.dashboard_link import turn_link
from headstart.talk.dialog import Dialog
from headstart.talk.local_server import LocalServer, local_server, until_ready
from headstart.talk.media.playback import probe
from headstart.talk.output import JsonOutput, Output, PrettyOutput

EXIT_ANSWER_FAILED = 1
STAY_PORT = 8080
HOST = "127.0.0.1"


@dataclass(frozen=True)
class TalkCommand:
    """`url` None: start our own server with `server_arguments`; with `stay` it keeps running after
    the talk, on `port` (None: `STAY_PORT` if that is free, else any free one), until it is
    interrupted."""

    files: Sequence[Path]
    url: str | None = None
    as_json: bool = False
    options: TalkOptions = field(default_factory=TalkOptions)
    server_arguments: Sequence[str] = ()
    stay: bool = False
    port: int | None = None


def run(command: TalkCommand) -> int:
    """Run the talk. Returns the exit code: 1 if the last answer failed. Raises `TalkError`s."""
    output: Output = JsonOutput() if command.as_json else PrettyOutput()
    try:
        dialog = asyncio.run(_run(command, output))
    finally:
        output.close()
    result = dialog.to_wire()
    if output.server_url is not None:
        result["dashboard"] = turn_link(output.server_url, dialog.turn)
    output.done(result)
    last = dialog.turn.last_answer if dialog.turn is not None else None
    return EXIT_ANSWER_FAILED if last is not None and last.status == "failed" else 0


async def _run(command: TalkCommand, output: Output) -> Dialog:
    # Before a server is started or contacted.
    clips = [await asyncio.to_thread(probe, path) for path in command.files]
    if command.url is not None:
        output.server_url = command.url
        options = command.options
        await until_ready(command.url, output.status, api_key=options.api_key, speak=options.speak)
        return await talk(clips, command.url, command.options, output)
    arguments = list(command.server_arguments)
    if command.options.model is not None:
        arguments += ["--model", command.options.model]
    port = command.port
    if port is None:
        port = STAY_PORT if command.stay and not is_in_use(STAY_PORT) else 0
    elif port and is_in_use(port):
        # Here, and not by the server: that one's sentence would stand within a log.
        raise PortInUse(HOST, port)
    output.starting()
    async with local_server(arguments, port) as server:
        try:
            speak, api_key = command.options.speak, command.options.api_key
            await until_ready(server.url, output.status, server.check, api_key, speak=speak)
            output.server_url = server.url if command.stay else None
            dialog = await talk(clips, server.url, command.options, output)
            if command.stay:
                output.staying(server.url)
                await _interrupted(server)
            return dialog
        except (ServerUnreachable, ServerFailed) as error:
            raise await server.explain(error) from error


def is_in_use(port: int) -> bool:
    """Whether another program listens there. What else is wrong with a port, the server says."""
    with socket.socket() as probe_socket:
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind((HOST, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


async def _interrupted(server: LocalServer) -> None:
    """Wait for Ctrl-C or SIGTERM, or for the server's own end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    ending = [
        tasks.awaited(stop.wait(), "interrupted"),
        tasks.awaited(server.ended(), "server ended"),
    ]
    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    for task in ending:
        task.cancel()
    server.check()
