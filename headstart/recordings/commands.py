"""The commands `replay`, `export` and `compare`: what they are told, and their exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart.interrupts import at_work
from headstart.recordings.export import Format
from headstart.recordings.reader import Recording

if TYPE_CHECKING:
    from rich.console import Console

EXIT_SLOWER = 1
FAIL_OVER_PERCENT = 5.0
SPEED_MIN, SPEED_MAX = 0.01, 1000.0

RecordingFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A recording: `serve --record`, or the page's.")
]
Speed = Annotated[
    float, typer.Option(min=SPEED_MIN, max=SPEED_MAX, help="How many times as fast as it was.")
]
Fast = Annotated[bool, typer.Option("--fast", help="As fast as it can be read.")]


def replay(
    file: RecordingFile,
    speed: Speed = 1.0,
    fast: Fast = False,
    turn: Annotated[
        str | None,
        typer.Option(help="Show this turn alone: its id, or the end of it.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The turns' messages, a line each.")] = (
        False
    ),
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the dashboard's page over the file.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve; 0: any free one.")] = 0,
) -> None:
    """Show a recording's turns again, as they came."""
    from headstart.recordings import replay as replays
    from headstart.recordings.pace import Pace

    if serve and (turn is not None or as_json):
        raise typer.BadParameter("--serve shows the page: leave out --turn and --json")
    recording = Recording(file)
    pace = Pace(None if fast else speed)
    if serve:
        _serve(recording, None if fast else speed, port)
    elif turn is not None and as_json:
        print(json.dumps(replays.find(recording, turn).message, ensure_ascii=False))
        replays.warn(recording)
    elif turn is not None:
        replays.print_turn(recording, turn, _console())
    elif as_json:
        replays.print_json(recording, pace, sys.stdout)
    else:
        replays.print_replay(recording, pace, _console())


def _serve(recording: Recording, speed: float | None, port: int) -> None:
    from headstart.recordings.serve import serve

    def ready(url: str) -> None:
        print(f"{recording.path} is replayed at {url} until Ctrl-C", flush=True)

    at_work()
    serve(recording, speed, port, ready)


def export(
    file: RecordingFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; -: stdout.")],
    to: Annotated[Format, typer.Option(help="What to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write a recording's turns as CSV, JSON, or a trace for ui.perfetto.dev."""
    from headstart.recordings import export as exports
    from headstart.recordings.replay import warn

    recording = Recording(file)
    at_work()
    turns = exports.export(recording, to, out, force)
    warn(recording)
    print(f"{turns} turn{'' if turns == 1 else 's'} written to {out}", file=sys.stderr)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The recording before.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one after.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    fail_over: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, help="Slower by less than this is no fault.")
    ] = FAIL_OVER_PERCENT,
) -> None:
    """Compare two recordings. Exit code: 0 not slower, 1 slower, 2 they cannot be compared.

    Slower: the first token, first sound or sound heard comes later in B, by more than PERCENT and
    with the whole 95 % interval above 0.
    """
    from headstart.recordings import compare as comparing
    from headstart.recordings.replay import warn
    from headstart.recordings.report import print_report

    recordings = [Recording(a), Recording(b)]
    before, after = map(comparing.load, recordings)
    comparison = comparing.compare(before, after, fail_over)
    for recording in recordings:
        warn(recording)
    if as_json:
        print(json.dumps(comparison.to_wire(), ensure_ascii=False))
    else:
        print_report(comparison, _console())
    if comparison.slower:
        raise typer.Exit(EXIT_SLOWER)


def _console() -> Console:
    from rich.console import Console  # each start of a server would pay for it

    return Console(highlight=False)
