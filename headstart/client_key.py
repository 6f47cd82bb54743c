"""The API key that our clients send to a server with keys: an option, or a variable.

A command line can be seen by other users of the machine, a variable cannot: the option is for
trying things out.

"""

from __future__ import annotations

from typing import Annotated

import typer

VARIABLE = "HEADSTART_CLIENT_KEY"
NO_KEY = "none-needed"
"""Sent where none was given, as stock clients send one: a server without keys reads none."""


def _checked(key: str) -> str:
    """A key as a header can carry it. Raises `typer.BadParameter`, which does not show the key."""
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise typer.BadParameter(
            f"expected a key of printable ASCII characters (in --key or {VARIABLE})"
        )
    return key


ApiKey = Annotated[
    str,
    typer.Option(
        "--key",
        envvar=VARIABLE,
        callback=_checked,
        metavar="KEY",
        help="API key, for a server that has some. Others can see it in the list of processes: "
        "rather set the variable.",
        show_default=False,
    ),
]
