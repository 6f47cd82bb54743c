"""Which notes a question needs. No I/O.

A question is answered from as many notes as a model reads at once (`room_chars`). When there are
more, the likeliest are taken whole: those whose words are rare elsewhere and occur in the question
(BM25, Robertson and Zaragoza 2009), those at a time it names, and the beginning or the end if it
names that; the others are left to digests, notes of many parts in one.

"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from headstart.talk.long_file.notes import Caption, Note

K1, B = 1.2, 0.5
NAMED_BONUS = 100.0
"""Of a part at a time that the question names: before all others."""
FEW = 3
"""Notes that a model gets which is confused by more."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CLOCK = re.compile(r"\b(?:(\d+):)?(\d{1,2}):(\d{2})\b")
_MINUTE = re.compile(
    r"\b(?:minutes?|min)\s+(\d+)\b|\b(\d+)(?:st|nd|rd|th)?[\s-]+(?:minutes?|min)\b"
)
_SECOND = re.compile(r"\b(\d+)(?:st|nd|rd|th)?[\s-]+seconds?\b|\bseconds?\s+(\d+)\b")
_ENDS = re.compile(r"\b(?:at|in|towards?|of) (?:the )?(?:very )?(?:end|close)\b|\blast\b|\bfinal")
_BEGINS = re.compile(r"\b(?:beginning|begins?|start|starts|opening|first)\b")
_STOP_WORDS = """
a an and are as at be been by did do does for from had has have he her him his how i in
is it its me my of on or our she that the their them then there they this to was we were
what when where which who whom whose why will with you your say says said tell video
film recording show shows shown see seen hear heard about during into s t speaker person
someone
"""
_STOP = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """The words by which texts are compared: without the commonest, and without endings."""
    found = (word.lower() for word in _WORD.findall(text))
    return [_stem(word) for word in found if word not in _STOP]


def _stem(word: str) -> str:
    for ending in ("'s", "ings", "ing", "edly", "ied", "ies", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def scores(question: str, notes: Sequence[Note], start_s: float, end_s: float) -> list[float]:
    """How much each note has to do with a question; the range is the recording's."""
    texts = [Counter(terms(_text(note))) for note in notes]
    mean = sum(map(sum, (t.values() for t in texts))) / max(1, len(texts)) or 1.0
    asked = set(terms(question))
    known = Counter(term for text in texts for term in text)
    named_s = times(question, end_s)
    found = []
    for note, text in zip(notes, texts, strict=True):
        length = sum(text.values())
        score = 0.0
        for term in asked & text.keys():
            rarity = math.log(1 + (len(notes) - known[term] + 0.5) / (known[term] + 0.5))
            often = text[term]
            score += rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
        part = note.part
        if any(from_s < part.end_s and part.start_s < to_s for from_s, to_s in named_s):
            score += NAMED_BONUS
        found.append(score)
    if found and _BEGINS.search(question.lower()):
        found[0] += 0.5 * NAMED_BONUS
    if found and _ENDS.search(question.lower()):
        found[-1] += 0.5 * NAMED_BONUS
    return found


def _text(note: Note) -> str:
    shown = (text for caption in note.captions for text in (caption.text, *caption.lines))
    return " ".join((note.seen, *shown, *(line.text for line in note.heard)))


def times(question: str, end_s: float) -> list[tuple[float, float]]:
    """The ranges that a question names, in s: `12:30`, `minute 12`, `after 40 seconds`."""
    found = [(at_s - 1, at_s + 1) for at_s in clock_times(question)]
    lower = question.lower()
    for before, behind in _MINUTE.findall(lower):
        minute = int(before or behind)
        found.append((60.0 * minute - 5, 60.0 * minute + 60))
    for before, behind in _SECOND.findall(lower):
        at_s = float(before or behind)
        found.append((at_s - 5, at_s + 5))
    return [(from_s, to_s) for from_s, to_s in found if from_s < end_s]


def chosen(
    question: str,
    notes: Sequence[Note],
    room_chars: int,
    start_s: float,
    end_s: float,
    *,
    few: bool = False,
) -> list[Note]:
    """The notes for a question, in order of time: all if they fit, else the likeliest, each with
    its neighbours as far as there is room. At least one. `few`: even if all fit, only those at a
    time that the question names, or the `FEW` likeliest."""
    fit = sum(len(str(note)) for note in notes) <= room_chars
    if fit and not few:
        return list(notes)
    points = scores(question, notes, start_s, end_s)
    order = sorted(range(len(notes)), key=lambda i: (-points[i], i))
    if few and points[order[0]] > 0:
        floor = NAMED_BONUS / 2 if points[order[0]] >= NAMED_BONUS / 2 else points[order[0]] / 3
        order = [i for i in order if points[i] >= floor][:FEW]
        while len(order) > 1 and sum(len(str(notes[i])) for i in order) > room_chars:
            order.pop()
        return [notes[i] for i in sorted(order)]
    if fit:
        return list(notes)
    picked: set[int] = set()
    left = room_chars
    wanted = [i for i in order if points[i] > 0]
    for index in [*wanted, *(i + d for i in wanted for d in (1, -1)), *_spread(len(notes))]:
        if index in picked or not 0 <= index < len(notes):
            continue
        cost = len(str(notes[index]))
        if cost <= left or not picked:
            picked.add(index)
            left -= cost
    return [notes[i] for i in sorted(picked)]


def _spread(count: int) -> Iterable[int]:
    """All indices: first the ends, then the middles between those that came before."""
    step = count - 1
    seen = set()
    while step >= 1:
        for index in range(0, count, step):
            if index not in seen:
                seen.add(index)
                yield index
        step //= 2
    yield from (i for i in range(count) if i not in seen)


def shown_at(notes: Sequence[Note], at_s: float) -> Caption | None:
    """What stood there at a time, as far as single pictures of that part were described."""
    there = (note for note in notes if note.part.start_s <= at_s < note.part.end_s)
    earlier = (c for note in there for c in note.captions if c.at_s <= at_s)
    return max(earlier, key=lambda caption: caption.at_s, default=None)


def clock_times(question: str) -> list[float]:
    """The times in the recording that a question names exactly, in s."""
    return [
        3600.0 * int(hours or 0) + 60 * int(minutes) + int(seconds)
        for hours, minutes, seconds in _CLOCK.findall(question)
    ]
