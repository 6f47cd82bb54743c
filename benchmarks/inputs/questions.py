"""Everyday dialogs to type or to speak: fifty questions, and twenty held out (questions.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_LIST = Path(__file__).with_name("questions.toml")


def dialogs() -> list[dict[str, Any]]:
    """Each is a session of its own, with the keys `kind`, `ask` (its questions in order, each with
    `say` and `want`, the pattern of a right answer or ""), `see` (a photograph's name) if a camera
    shows one, and `held` if it is held out."""
    found: list[dict[str, Any]] = tomllib.loads(_LIST.read_text())["dialog"]
    return found
