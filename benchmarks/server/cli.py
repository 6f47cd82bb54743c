"""`headstart bench live`, `conversations` and `start`, as the command line has them."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

Json = typer.Option(False, "--json", help="print nothing on stdout but the JSON line")
Folder = typer.Option(
    Path("build/conversations"), "--folder", help="where spoken sentences are kept"
)
Small = typer.Option("small", "--model", help="medium, small or tiny")


def live(
    sessions: int = typer.Option(4, "--sessions", min=1, help="number of concurrent speakers"),
    model: str = Small,
    seconds: float = typer.Option(60.0, "--seconds", min=1, help="measured time"),
    warm_up: float = typer.Option(10.0, "--warm-up", min=0, help="seconds before, not measured"),
    as_json: bool = Json,
) -> None:
    """Several speakers who never pause, through the real server in real time."""
    from headstart.benchmarks.server import live as benchmark

    benchmark.run(model, sessions, seconds, warm_up, as_json=as_json)


def conversations(
    sessions: str = typer.Option("8,16,24,32", "--sessions", help="numbers of people at once"),
    model: str = Small,
    seconds: float = typer.Option(90.0, "--seconds", min=1, help="measured time of each number"),
    warm_up: float = typer.Option(20.0, "--warm-up", min=0, help="seconds before, not measured"),
    seed: int = typer.Option(1, help="the same seed gives the same people"),
    folder: Path = Folder,
    server: str = typer.Option(
        "", "--server", help="further arguments of `headstart serve`, in one string"
    ),
    as_json: bool = Json,
) -> None:
    """People who speak, listen, think and are away, through the real server in real time."""
    from headstart.benchmarks.server import conversations as benchmark

    try:
        counts = [int(word) for word in sessions.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise typer.BadParameter(f"expected numbers from 1 on, like 8,16; got {sessions!r}")
    arguments = shlex.split(server)
    benchmark.run(model, counts, seconds, warm_up, seed, folder, arguments, as_json=as_json)


def start(
    model: str = Small,
    starts: int = typer.Option(5, "--starts", min=1, help="of each kind; the median is reported"),
    cold: bool = typer.Option(True, help="once with weights that are not in the page cache"),
    as_json: bool = Json,
) -> None:
    """Start of a real server until it is ready, by stage, and its memory."""
    from headstart.benchmarks.server import start as benchmark

    benchmark.run(model, starts, cold=cold, as_json=as_json)
