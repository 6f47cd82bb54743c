"""Options of all commands that start a server: which model, recogniser, engine and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings (`headstart settings` prints one).",
        metavar="FILE",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="small, medium, tiny, or a model's directory (docs/models.md).",
        metavar="NAME|DIR",
        show_default="small",
    ),
]
Ears = Annotated[
    str | None,
    typer.Option(
        help="Whisper for recognition: folder, weights by name, or auto (the largest fetched one "
        "that this machine can run in real time).",
        metavar="WHISPER",
        show_default="the model's own",
    ),
]
EarsLanguage = Annotated[
    str | None,
    typer.Option(
        help="Spoken language: a code, or auto; others than en need a multilingual --ears.",
        metavar="CODE",
        show_default="en",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="local, or fake: a script answers, without a model, for tests of clients.",
        metavar="ENGINE",
        show_default="local",
    ),
]
