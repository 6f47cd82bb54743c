"""Work in pieces: a generator that yields wherever other work may go first, and returns its result.

What it is about must be left alone meanwhile; other utterances may be heard between its pieces.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
Pieces = Generator[None, None, Result]


def drain(pieces: Pieces[Result]) -> Result:
    """All pieces at once."""
    while True:
        try:
            next(pieces)
        except StopIteration as ended:
            result: Result = ended.value
            return result
