"""Work in pieces: a generator that yields wherever other work may go first, and returns its result.

What it is about must be left alone meanwhile; other utterances may be heard between its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
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


def within(
    entered: Callable[[], AbstractContextManager[object]], work: Pieces[Result]
) -> Pieces[Result]:
    """`work`, each of whose pieces runs within a context of its own; what is done between them does
    not."""
    while True:
        with entered():
            try:
                next(work)
            except StopIteration as ended:
                result: Result = ended.value
                return result
        yield
