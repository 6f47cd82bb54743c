"""Which notes a question needs, and which lines of them it is about. No I/O.

A question is answered from as many notes as a model reads at once (`room_chars`). When there are
more, the likeliest are taken whole: those whose words are rare elsewhere and occur in the question
(BM25, Robertson and Zaragoza 2009), those at a time it names, and the beginning or the end if it
names that; the others are left to digests, notes of many parts in one.

Lines are compared with a question in the same way (`to_the_point`). Whether it is about what is
written or what is said is known in English only; otherwise all lines count.

"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from headstart.talk.long_file.notes import SAID, SHOWN, Entry, Note

K1, B = 1.2, 0.5
NAMED_BONUS = 100.0
"""Of a part at a time that the question names: before all others."""
FEW = 3
"""Notes that a model gets which is confused by more."""
LIKELY_SHARE, LIKELY_MAX = 0.7, 2
"""A line is to the point from this share of the best one's points on; if more are, none is."""
ASKED_SHARE = 0.5
"""Of a question's words, that a line to the point has."""
AROUND_MAX, PAUSE_S = 2, 3.0
"""So many lines on either side of one belong to it, with no longer pause between them."""
ROUNDED_S = 1.0
"""Of a time in a question."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CLOCK = re.compile(r"\b(?:(\d+):)?(\d{1,2}):(\d{2})\b")
_MINUTE = re.compile(
    r"\b(?:minutes?|min)\s+(\d+)\b|\b(\d+)(?:st|nd|rd|th)?[\s-]+(?:minutes?|min)\b"
)
_SECOND = re.compile(r"\b(\d+)(?:st|nd|rd|th)?[\s-]+seconds?\b|\bseconds?\s+(\d+)\b")
_ENDS = re.compile(r"\b(?:at|in|towards?|of) (?:the )?(?:very )?(?:end|close)\b|\blast\b|\bfinal")
_BEGINS = re.compile(r"\b(?:beginning|begins?|start|starts|opening|first)\b")
_WRITING = re.compile(
    r"\b(?:slides?|written|writing|writes?|texts?|signs?|reads?|titles?|headlines?|captions?"
    r"|labels?|posters?|boards?|whiteboards?|blackboards?|screens?|pages?|letters|bullets?)\b"
)
_SPEECH = re.compile(
    r"\b(?:said|hear|heard|speaks?|speakers?|spoken|talks?|talked|tells?|told|voices?"
    r"|(?:he|she|they|one|person|man|woman) says?)\b"
)
_WHOLE = re.compile(
    r"\b(?:summar\w*|overview|overall|topics?|whole|entire|everything|main (?:points?|ideas?))\b"
    r"|\babout\W*$"
)
_WHEN = re.compile(
    r"\b(?:when|(?:at|from|since) (?:what|which) (?:time|minute|second|moment|point)|what time)\b"
    r".*\b(?:shown?|shows|seen?|appears?|visible|displayed|said|says?|mention(?:s|ed)?"
    r"|talk(?:s|ed)?|speaks?|hear|heard|(?:video|film|recording|clip))\b"
)
_STOP_WORDS = """
a an and are as at be been by did do does for from had has have he her him his how i in
is it its me my of on or our she that the their them then there they this to was we were
what when where which who whom whose why will with you your say says said tell video
film recording show shows shown see seen hear heard about during into s t speaker person
someone time many much should one slide slides written text
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
    found = _bm25(question, [_text(note) for note in notes])
    named_s = times(question, end_s)
    for index, note in enumerate(notes):
        part = note.part
        if any(from_s < part.end_s and part.start_s < to_s for from_s, to_s in named_s):
            found[index] += NAMED_BONUS
    if found and _BEGINS.search(question.lower()):
        found[0] += 0.5 * NAMED_BONUS
    if found and _ENDS.search(question.lower()):
        found[-1] += 0.5 * NAMED_BONUS
    return found


def _bm25(question: str, texts: Sequence[str]) -> list[float]:
    counts = [Counter(terms(text)) for text in texts]
    mean = sum(map(sum, (count.values() for count in counts))) / max(1, len(counts)) or 1.0
    asked = set(terms(question))
    known = Counter(term for count in counts for term in count)
    found = []
    for count in counts:
        length = sum(count.values())
        score = 0.0
        for term in asked & count.keys():
            rarity = math.log(1 + (len(counts) - known[term] + 0.5) / (known[term] + 0.5))
            often = count[term]
            score += rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / mean))
        found.append(score)
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


def to_the_point(question: str, notes: Sequence[Note]) -> list[Entry]:
    """The lines that a question is about, in order: what is shown or said at a time that it names,
    or what has most of its words, with what was said around it. None if that is no line or many, or
    if it asks about the whole."""
    everything = [entry for note in notes for entry in note.entries()]
    said = [entry for entry in everything if entry.kind == SAID]
    entries = everything
    asks_to_hear, asks_to_read = _SPEECH.search(question.lower()), _WRITING.search(question.lower())
    if asks_to_hear and not asks_to_read:
        entries = said
    elif asks_to_read and not asks_to_hear:
        entries = [entry for entry in everything if entry.has_writing]
    named_s = clock_times(question)
    found = [entry for at_s in named_s for entry in _at(notes, entries, at_s)]
    if not named_s and not _WHOLE.search(question.lower()):
        found = _likely(question, entries)
    around = [entry for each in found if each.kind == SAID for entry in _around(each, said)]
    return sorted({*found, *around}, key=lambda entry: (entry.start_s, entry.kind, entry.text))


def asks_when(question: str) -> bool:
    """Whether it asks for a time in the recording, in English: "When is the lion shown?", but not
    "When does the train leave?", which the recording may tell."""
    return not clock_times(question) and _WHEN.search(question.lower()) is not None


def things_shown(notes: Sequence[Note]) -> list[Entry]:
    """What is shown, the first of lines that say the same, without those that only say that they
    can't tell."""
    shown = [e for note in notes for e in note.entries() if e.kind == SHOWN and not e.is_unknown]
    first = {entry.text: entry for entry in reversed(shown)}
    return [entry for entry in shown if first[entry.text] is entry]


def _at(notes: Sequence[Note], entries: Sequence[Entry], at_s: float) -> list[Entry]:
    """What stood there in the part of that time, and what was being said, or was said last; nothing
    behind the end."""
    there = (note.part for note in notes if note.part.start_s <= at_s < note.part.end_s)
    part = next(there, None)
    if part is None:
        return []
    begun = [entry for entry in entries if entry.start_s < at_s + ROUNDED_S]
    shown = [entry for entry in begun if entry.kind == SHOWN and entry.start_s >= part.start_s]
    said = [entry for entry in begun if entry.kind == SAID]
    return [*shown[-1:], *said[-1:]]


def _likely(question: str, entries: Sequence[Entry]) -> list[Entry]:
    """The lines with most of a question's words, the first of those that say the same."""
    first = {entry.text: entry for entry in reversed(entries)}
    once = [entry for entry in entries if first[entry.text] is entry]
    points = _bm25(question, [entry.text for entry in once])
    best = max(points, default=0.0)
    asked = set(terms(question))
    found = [
        entry
        for entry, score in zip(once, points, strict=True)
        if score > 0
        and score >= LIKELY_SHARE * best
        and len(asked.intersection(terms(entry.text))) >= ASKED_SHARE * len(asked)
    ]
    if len(found) > LIKELY_MAX and asks_when(question):
        return found[:1]  # it begins there
    return found if len(found) <= LIKELY_MAX else []


def _around(entry: Entry, said: Sequence[Entry]) -> list[Entry]:
    """The lines said just before and behind one, which may be of the same sentence."""
    at = said.index(entry)
    found = []
    for step in (-1, 1):
        here = at
        while abs(here - at) < AROUND_MAX and 0 <= here + step < len(said):
            early, late = sorted((here, here + step))
            if said[late].start_s - said[early].end_s > PAUSE_S:
                break
            here += step
            found.append(said[here])
    return found


def clock_times(question: str) -> list[float]:
    """The times in the recording that a question names exactly, in s."""
    return [
        3600.0 * int(hours or 0) + 60 * int(minutes) + int(seconds)
        for hours, minutes, seconds in _CLOCK.findall(question)
    ]
