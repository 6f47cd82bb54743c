"""The `headstart talk` command: files, a server, an output; an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import ServerFailed, ServerUnreachable
from gateway.talk.client import TalkOptions, talk
from gateway.talk.dialog import Dialog
from gateway.talk.local_server import local_server, until_ready
from gateway.talk.media import probe
from gateway.talk.output import JsonOutput, Output, PrettyOutput

EXIT_ANSWER_FAILED = 1


@dataclass(frozen=True)
class TalkCommand:
    """`url` None: start a server of our own, with `server_arguments`."""

    files: Sequence[Path]
    url: str | None = None
    as_json: bool = False
    options: TalkOptions = field(default_factory=TalkOptions)
    server_arguments: Sequence[str] = ()


def run(command: TalkCommand) -> int:
    """Talk. Returns the exit code: 1 if the last answer failed. Raises `TalkError`s."""
    output: Output = JsonOutput() if command.as_json else PrettyOutput()
    try:
        dialog = asyncio.run(_run(command, output))
    finally:
        output.close()
    output.done(dialog.to_wire())
    last = dialog.turn.last_answer if dialog.turn is not None else None
    return EXIT_ANSWER_FAILED if last is not None and last.status == "failed" else 0


async def _run(command: TalkCommand, output: Output) -> Dialog:
    for path in command.files:
        await asyncio.to_thread(probe, path)  # before a server is started or told anything
    if command.url is not None:
        await until_ready(command.url, output.status)
        return await talk(command.files, command.url, command.options, output)
    arguments = list(command.server_arguments)
    if command.options.model is not None:
        arguments += ["--model", command.options.model]
    async with local_server(arguments) as server:
        try:
            await until_ready(server.url, output.status, server.check)
            return await talk(command.files, server.url, command.options, output)
        except (ServerUnreachable, ServerFailed) as error:
            raise await server.explain(error) from error
