"""Which regions of a picture a question is about, and how many tokens each of them gets.

A question may name a place ("on the left"), be about what is written, about people or about what
has changed, or name a thing or a word that is there. English only, like all that is known of
questions here. One that is about none of it gets what mostly matters in a picture: writing, faces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.findings import (
    Findings,
    RegionFinder,
    Writing,
    changes,
)
from headstart.engine.vision.regions.grid import Grid

LEVELS = (64, 144, 256, 400)
"""Tokens that a region may get; few numbers, so that it is found in the cache again."""
ASKED_TOKENS = 1024
"""Of all regions together that a question is about."""
UNASKED_TOKENS = 256
"""Of regions with writing or faces, if a question is about nothing in particular."""

# Height of a line's box, in pixels as they are shown, at which it can be read.
LEGIBLE_PX = 16.0
_THING_TOKENS = 256  # of faces, a thing, or something that has changed
# Difference of luma from which the camera's sampler calls it motion.
_CHANGED_FROM = 0.02
# Relevance of writing without the words of a question, where there is some with them.
_OTHER_WRITING = 0.5

_PEOPLE = re.compile(
    r"\b(who|whose|people|persons?|man|men|woman|women|boys?|girls?|child|children|faces?|eyes?"
    r"|hair|beard|smil(e|es|ing)|wear(s|ing)?|he|she|his|her)\b",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(chang(e|es|ed|ing)|different|difference|mov(e|es|ed|ing)|is new|anything new)\b",
    re.IGNORECASE,
)
_SIDE = r"(left|right|top|upper|bottom|lower|middle|centre|center)"
_PLACE = re.compile(
    rf"\b(in|on|at|to|from|near) the ((far|very|extreme) )?{_SIDE}\b"
    rf"|\b{_SIDE}([ -]hand)? (side|corner|half|edge|part|third)\b",
    re.IGNORECASE,
)
_SIDES = re.compile(rf"\b{_SIDE}\b")  # "laptop" names none
_WORD = re.compile(r"[^\W\d_]{3,}|\d{2,}")
_NAMES_NOTHING = """
    about and any are can could describe does did doing for from has have here how into its left
    look like near not now one picture image photo please right see show shows shown some tell that
    the their them then there these they thing things this those top upper bottom lower middle
    centre center side corner was were what when where which who why will with would you your
"""
_COMMON = frozenset(_NAMES_NOTHING.split())


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about. `places`: words for sides. `words`: those that may name something,
    in the singular too."""

    writing: bool
    people: bool
    change: bool
    places: frozenset[str]
    words: frozenset[str]

    @property
    def is_general(self) -> bool:
        return not (self.writing or self.people or self.change or self.places or self.words)


def asked_by(question: str, *, writing: bool = False) -> Asked:
    """What a question is about; that it is about `writing`, the caller knows."""
    words = {word.lower() for word in _WORD.findall(question)}
    places = _SIDES.findall(question.lower()) if _PLACE.search(question) else ()
    named = words - _COMMON
    return Asked(
        writing=writing,
        people=bool(_PEOPLE.search(question)),
        change=bool(_CHANGE.search(question)),
        places=frozenset(places),
        words=frozenset(named | {word.removesuffix("s") for word in named}),
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A region's relevance, above 0 up to 1, and the tokens in which what is there can be seen."""

    relevance: float
    tokens: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """A picture with what can be found in it, looked for on demand."""

    rgb: Rgb
    found: Findings
    finder: RegionFinder
    cell_pixels: int

    @property
    def writing(self) -> dict[int, Writing]:
        return self.finder.writing(self.rgb, self.found)

    @property
    def people(self) -> dict[int, int]:
        return self.finder.people(self.rgb, self.found)

    @property
    def things(self) -> dict[int, dict[str, float]]:
        return self.finder.things(self.rgb, self.found)

    def full(self, number: int) -> int:
        """Tokens of a region in full size."""
        return self.found.grid.box(number).pixels // self.cell_pixels

    def legible(self, number: int, writing: Writing) -> int:
        """Tokens in which its lowest line is `LEGIBLE_PX` high."""
        scale = min(LEGIBLE_PX / max(writing.least_px, 1.0), 1.0)
        return round(self.full(number) * scale**2)


def tokens_by_region(
    question: str,
    rgb: Rgb,
    found: Findings,
    finder: RegionFinder,
    cell_pixels: int,
    *,
    before: Rgb | None = None,
    writing: bool = False,
) -> dict[int, int]:
    """The regions of `rgb` that matter, with one of `LEVELS` each; empty if nothing is known to.
    `cell_pixels`: of a token, in full size. `before`: the picture before it. `writing`: whether the
    question is about what is written."""
    asked, seen = asked_by(question, writing=writing), _Seen(rgb, found, finder, cell_pixels)
    wanted, limit = _wanted(asked, seen, before), ASKED_TOKENS
    if asked.places:
        there = in_places(found.grid, asked.places)
        inside = {number: want for number, want in wanted.items() if number in there}
        wanted = inside or {number: Wanted(1.0, LEVELS[-1]) for number in there}
    elif asked.is_general:
        wanted, limit = _salient(seen), UNASKED_TOKENS
    return allot(wanted, {number: seen.full(number) for number in wanted}, limit)


def _wanted(asked: Asked, seen: _Seen, before: Rgb | None) -> dict[int, Wanted]:
    if asked.writing:
        return _written(asked, seen.writing, seen)
    if asked.change:
        changed = changes(seen.rgb, before, seen.found.grid)
        moved = {number: size for number, size in changed.items() if size >= _CHANGED_FROM}
        most = max(moved.values(), default=1.0)
        return {number: Wanted(size / most, _THING_TOKENS) for number, size in moved.items()}
    if asked.people and (people := seen.people):
        return {number: Wanted(1.0, _THING_TOKENS) for number in people}
    if not asked.words:
        return {}
    named = {number: _likeliest(names, asked.words) for number, names in seen.things.items()}
    wanted = {number: Wanted(p, _THING_TOKENS) for number, p in named.items() if p}
    for number in _with_words(asked.words, seen.writing):
        wanted[number] = Wanted(1.0, seen.legible(number, seen.writing[number]))
    return wanted


def _written(asked: Asked, written: Mapping[int, Writing], seen: _Seen) -> dict[int, Wanted]:
    """Regions with writing; if the question's words are in some of them, those come first."""
    with_words = _with_words(asked.words, written)
    return {
        number: Wanted(
            1.0 if not with_words or number in with_words else _OTHER_WRITING,
            seen.legible(number, writing),
        )
        for number, writing in written.items()
    }


def _salient(seen: _Seen) -> dict[int, Wanted]:
    wanted = {number: Wanted(0.5, LEVELS[0]) for number in seen.people}
    for number, writing in seen.writing.items():
        wanted[number] = Wanted(1.0, seen.legible(number, writing))
    return wanted


def _likeliest(names: Mapping[str, float], words: frozenset[str]) -> float:
    """The probability of the likeliest name that has one of the words; 0.0 for none."""
    return max((p for name, p in names.items() if words & set(name.lower().split())), default=0.0)


def _with_words(words: frozenset[str], written: Mapping[int, Writing]) -> set[int]:
    return {n for n, writing in written.items() if words & set(_WORD.findall(writing.text))}


def in_places(grid: Grid, places: Iterable[str]) -> frozenset[int]:
    """The regions that lie where all of `places` say; of one row or column every region does."""
    sides = set(places)
    left = frozenset(range(len(grid)))
    for axis, first, last in ((0, {"left"}, {"right"}), (1, {"top", "upper"}, {"bottom", "lower"})):
        at = {number: grid.centre(number)[axis] for number in left}
        if sides & first:
            kept = {number for number, place in at.items() if place < 0.5}
        elif sides & last:
            kept = {number for number, place in at.items() if place > 0.5}
        elif sides & {"middle", "centre", "center"}:
            nearest = min(abs(place - 0.5) for place in at.values())
            kept = {n for n, place in at.items() if abs(place - 0.5) < nearest + 1e-6}
        else:
            continue
        left = frozenset(kept) or left
    return left


def allot(wanted: Mapping[int, Wanted], full: Mapping[int, int], limit: int) -> dict[int, int]:
    """One of `LEVELS` for regions, the most relevant first, as many tokens as they want, or fewer
    once all together come to `limit`. `full`: tokens of a region in full size, beyond which it
    costs no more."""
    given: dict[int, int] = {}
    for number in sorted(wanted, key=lambda n: (-wanted[n].relevance, n)):
        enough = next((level for level in LEVELS if level >= wanted[number].tokens), LEVELS[-1])
        for level in reversed(LEVELS):
            cost = min(level, full[number])
            if level <= enough and cost <= limit:
                given[number] = level
                limit -= cost
                break
    return given
