"""`headstart ask FILE QUESTION`: opens the file, a server and an output.

Ctrl-C ends the looking: the questions are answered from what is known. A second one, or one while
questions are answered, ends that too. The exit code is 0 if all questions were answered from the
whole range, 1 if an answer failed, 130 after Ctrl-C, and 2 if the server went away.

"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headstart.gateway.errors import ServerFailed, ServerUnreachable
from headstart.talk.local_server import local_server, until_ready
from headstart.talk.long_file.analysis import analyse
from headstart.talk.long_file.file_info import FileInfo, read_info, within
from headstart.talk.long_file.output import AskOutput, JsonAskOutput, PrettyAskOutput
from headstart.talk.long_file.report import AnalysisOptions, Report, Stop

EXIT_ANSWER_FAILED = 1
EXIT_SERVER_AWAY = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class AskCommand:
    """`url` None: start a server of our own with `server_arguments`."""

    file: Path
    options: AnalysisOptions = field(default_factory=AnalysisOptions)
    url: str | None = None
    as_json: bool = False
    server_arguments: Sequence[str] = ()


def run(command: AskCommand, output: AskOutput | None = None) -> int:
    """Run it. Returns the exit code. Raises `TalkError`s."""
    shown = output or (JsonAskOutput() if command.as_json else PrettyAskOutput())
    try:
        report = asyncio.run(_run(command, shown))
    finally:
        shown.close()
    shown.report(report)
    if report.error is not None:
        return EXIT_SERVER_AWAY
    if report.stopped or len(report.answers) < len(command.options.questions):
        return EXIT_INTERRUPTED
    failed = any(answer.status == "failed" for answer in report.answers)
    return EXIT_ANSWER_FAILED if failed else 0


async def _run(command: AskCommand, output: AskOutput) -> Report:
    options = command.options
    # Before a server is started or contacted.
    info = await asyncio.to_thread(read_info, command.file)
    within(info, options.from_s, options.to_s)
    if command.url is not None:
        await until_ready(command.url, output.status, api_key=options.api_key)
        return await _analysed(command, info, command.url, output)
    arguments = list(command.server_arguments)
    if options.model is not None:
        arguments += ["--model", options.model]
    output.starting()
    async with local_server(arguments) as server:
        try:
            await until_ready(server.url, output.status, server.check, options.api_key)
            return await _analysed(command, info, server.url, output)
        except (ServerUnreachable, ServerFailed) as error:
            raise await server.explain(error) from error


async def _analysed(command: AskCommand, info: FileInfo, url: str, output: AskOutput) -> Report:
    stop = Stop()
    with _stopped_by_interrupt(stop):
        return await analyse(info, url, command.options, output, stop)


@contextlib.contextmanager
def _stopped_by_interrupt(stop: Stop) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.ask)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
