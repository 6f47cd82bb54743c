"""Splits streamed text into clauses for synthesis. No I/O; joined clauses are the text.

A clause ends where a speaker would breathe: after `. ! ? …` and line ends, after `, ; : —` once
there are a few words, and after many words without any of these. The following character must be
known first: no split inside 3.14, 10:30, 1,000, e.g. or Dr. Smith. The first clause may be short,
because the listener waits for it. A lead-in of one or two words ("Sure,", "Of course!") is a clause
as soon as its mark has come: nothing but a space can follow it. Where text comes slowly the first
clause may also be the first phrase: `hurry`.

"""

from __future__ import annotations

import re

ENDS = ".!?…\n"
PAUSES = ",;:—\N{EN DASH}"
CLOSERS = "\"'”\N{RIGHT SINGLE QUOTATION MARK})]*_"  # stay with what they close
OPENERS = "(\"'“\N{LEFT SINGLE QUOTATION MARK}"

LEAD_IN = re.compile(
    r"\s*[\"'\u201c\u2018(]*"
    r"(?:[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[ ]?){1,2}(?<! )[,!?]"
    r"|\s*(?:yes|sure|okay|ok|right|certainly|absolutely|exactly|great|of course)\.",
    re.IGNORECASE,
)
# A phrase ends before one of these: "The capital | of France", "My favorite season | is autumn".
_PHRASE_BEGINS = (
    "a an the of in on at to for with from by and or but that which who is are was were has have "
    "can will would about as than because so if when"
)
PHRASE_BEGINS = frozenset(_PHRASE_BEGINS.split())
PHRASE_WORDS_MIN = 2
FIRST_WORDS_MIN = 2
LATER_WORDS_MIN = 4
"""Fewer words before a comma are joined with the next clause, so that lists sound natural."""
FIRST_WORDS_MAX = 8
LATER_WORDS_MAX = 16
CHARS_MAX = 240
"""Split here even inside a word, so that no text is held back for ever."""

ABBREVIATIONS = frozenset(
    {"mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "etc", "e.g", "i.e", "a.m", "p.m"}
    | {"approx", "inc", "ltd", "co", "u.s", "u.k"}
)


class ClauseCutter:
    """`push` text as it arrives, `flush` at its end; both return the completed clauses. `first`:
    where the text begins so, that is its first clause."""

    def __init__(self, first: str = "") -> None:
        self._first = first
        self._held = ""
        self._begun = False  # a clause was cut, if only a lead-in
        self._cut_any = False  # one that is more than a lead-in: the next ones may be longer

    def push(self, text: str) -> list[str]:
        self._held += text
        clauses: list[str] = []
        if self._first:
            first = self._first
            if len(self._held) < len(first) and first.startswith(self._held):
                return clauses
            self._first = ""
            if self._held.startswith(first):
                clauses.append(first)
                self._held = self._held[len(first) :]
                self._begun, self._cut_any = True, not LEAD_IN.fullmatch(first)
        while True:
            if not self._begun and (lead_in := LEAD_IN.match(self._held)):
                end: int | None = lead_in.end()
            else:
                end = self._end()
                self._cut_any = self._cut_any or end is not None
            if end is None:
                return clauses
            clauses.append(self._held[:end])
            self._held = self._held[end:]
            self._begun = True

    def hurry(self) -> list[str]:
        """The first phrase of what is held, if nothing but a lead-in was cut yet and the next
        phrase has begun. For a listener who would have to wait for the clause's other words."""
        if self._cut_any or self._first:
            return []
        words = list(re.finditer(r"\S+", self._held))
        for word in words[PHRASE_WORDS_MIN:]:
            whole = word.end() < len(self._held)  # else it may still become another word
            if whole and word[0].lower() in PHRASE_BEGINS:
                phrase, self._held = self._held[: word.start()], self._held[word.start() :]
                self._begun = self._cut_any = True
                return [phrase]
        return []

    def flush(self) -> list[str]:
        """The rest, as one clause; afterwards the cutter is reset."""
        rest, self._held, self._first = self._held, "", ""
        self._begun = self._cut_any = False
        return [rest] if rest else []

    def _end(self) -> int | None:
        """The end of the first held clause, including closing marks and spaces."""
        text = self._held
        fewest = LATER_WORDS_MIN if self._cut_any else FIRST_WORDS_MIN
        most = LATER_WORDS_MAX if self._cut_any else FIRST_WORDS_MAX
        for match in re.finditer(f"[{ENDS}{PAUSES}]+[{re.escape(CLOSERS)}]*", text):
            after = match.end()
            words = len(text[:after].split())
            if words > most:
                break
            if not text[:after].strip(ENDS + PAUSES + CLOSERS + " "):
                continue  # no words yet: a dash or a bullet before the first word
            ends = match[0][0] in ENDS
            if "\n" not in match[0] and (after == len(text) or not text[after].isspace()):
                continue  # what follows is unknown, or part of the same number or word
            if ends and text[match.start()] == "." and _abbreviates(text[: match.start()]):
                continue
            if ends or words >= fewest:
                return _past_spaces(text, after)
        return _long(text, most)


def _abbreviates(before: str) -> bool:
    """Whether the full stop after `before` belongs to its last word: Dr., J., or a list's 1."""
    word = before.rsplit(maxsplit=1)[-1].lstrip(OPENERS) if before.strip() else ""
    initial = len(word) == 1 and word.isalpha() and word != "I"
    numeral = word.isdigit() and word == before.strip()
    return initial or numeral or word.lower() in ABBREVIATIONS


def _past_spaces(text: str, at: int) -> int | None:
    """The position after the spaces at `at`; None while more may follow."""
    end = at + len(text[at:]) - len(text[at:].lstrip())
    return end if end < len(text) else None


def _long(text: str, most: int) -> int | None:
    """The position after the last of `most` words, once the next one has begun."""
    words = list(re.finditer(r"\S+", text))
    if len(words) > most:
        return words[most].start()
    return CHARS_MAX if len(text) > CHARS_MAX else None
