"""`headstart top`: what it is told."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headstart.client_key import NO_KEY, ApiKey
from headstart.interrupts import at_work

URL = "http://127.0.0.1:8080"


def top(
    where: Annotated[
        str, typer.Argument(metavar="[URL|FILE]", help="A server, or a recording.")
    ] = URL,
    once: Annotated[
        bool, typer.Option("--once", help="Print one look as text, and end (as into a pipe).")
    ] = False,
    api_key: ApiKey = NO_KEY,
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000.0, help="Of a recording: so many times as fast.")
    ] = 1.0,
) -> None:
    """Watch a server's latency and sessions in the terminal."""
    from rich.console import Console  # each start of a server would pay for it

    from headstart.top.run import once as look
    from headstart.top.run import watch
    from headstart.top.source import source_of

    at_work()
    console = Console(highlight=False)
    single = once or not console.is_terminal
    source = source_of(where, api_key, speed, single)
    asyncio.run(look(source, console) if single else watch(source, console))
