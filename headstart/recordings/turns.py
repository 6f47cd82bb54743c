"""A `turn` message as our commands work with it: checked, with None for what nobody measured."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headstart.recordings.clock import FeedClock, number
from headstart.recordings.reader import Json, Recorded

REVISED_WITHIN = 2000
"""Turns: one that came so many before the newest gets no more revisions. The server's ring."""

Span = tuple[str, float, float]


@dataclass(frozen=True)
class Chunk:
    """A chunk of speech, in ms from the turn's time 0."""

    start_ms: float
    duration_ms: float
    headroom_percent: float | None
    overrun: bool
    rolled_back: float


@dataclass(frozen=True)
class Turn:
    """One turn. `at_ms`: when it was sent, in ms since 1970."""

    message: Json
    id: str
    at_ms: float

    @cached_property
    def revision(self) -> float:
        return number(self.message.get("revision")) or 1.0

    @property
    def session(self) -> str:
        return _text(self.message.get("session")) or ""

    @property
    def number(self) -> int | None:
        given = number(self.message.get("turn"))
        return None if given is None else int(given)

    @property
    def reason(self) -> str:
        return _text(self.message.get("reason")) or "completed"

    @property
    def anchor(self) -> str | None:
        return _text(self.message.get("anchor"))

    @property
    def total_ms(self) -> float | None:
        return number(self.message.get("total_ms"))

    @property
    def budget_ms(self) -> float | None:
        return number(self.message.get("latency_budget_ms"))

    @property
    def hidden_ms(self) -> float | None:
        return number(self.message.get("hidden_ms"))

    @property
    def is_over_budget(self) -> bool:
        return self.message.get("over_budget") is True

    @property
    def is_interrupted(self) -> bool:
        return self.message.get("interrupted") is True

    @property
    def is_realtime(self) -> bool:
        return self.message.get("realtime") is not False

    @cached_property
    def stamps(self) -> dict[str, float | None]:
        return numbers(self.message.get("stamps_ms"))

    @cached_property
    def stages(self) -> dict[str, float | None]:
        """What each stage took, the voice's and the playout's among them."""
        found = numbers(self.message.get("stages_ms"))
        voice, playout = record(self.message.get("voice")), record(self.message.get("playout"))
        if found.get("voice") is None and voice is not None:
            found["voice"] = self._voice_ms(voice)
        if found.get("playout") is None and playout is not None:
            found["playout"] = number(playout.get("delay_ms"))
        return found

    def _voice_ms(self, voice: Json) -> float | None:
        begun = self.stamps.get("first_token")
        begun = self.stamps.get("first_clause") if begun is None else begun
        heard = self.stamps.get("first_sound")
        if heard is None or begun is None:
            return number(voice.get("first_sound_ms"))
        return max(0.0, heard - begun)

    @cached_property
    def spans(self) -> list[Span]:
        return [span for item in listed(self.message.get("spans")) for span in _span(item)]

    @cached_property
    def chunks(self) -> list[Chunk]:
        return [chunk for item in listed(self.message.get("chunks")) for chunk in _chunk(item)]

    @property
    def waits(self) -> Json:
        return record(self.message.get("waits")) or {}

    @property
    def left_out_as(self) -> str | None:
        """Why it is in no percentile; None: it counts."""
        if self.is_interrupted:
            return "interrupted"
        if not self.is_realtime:
            return "not_realtime"
        return "unmeasured" if self.total_ms is None else None

    @property
    def values(self) -> dict[str, float]:
        """What goes into percentiles: each measure and stage that is known, in ms."""
        if self.left_out_as is not None:
            return {}
        found = {"total": self.total_ms, "first_sound": self.stamps.get("first_sound")}
        found |= {"heard": self.stamps.get("playout_started"), **self.stages}
        return {name: ms for name, ms in found.items() if ms is not None and ms >= 0}

    @property
    def clip(self) -> str | None:
        """The same clip or words in two runs have the same name here; None: nothing tells."""
        clip = self.message.get("clip")
        if isinstance(clip, str) and clip:
            return f"clip {clip}"
        words = (record(self.message.get("text")) or {}).get("transcript")
        said = words.strip().lower() if isinstance(words, str) else ""
        return f"text {said}" if said else None


def read_turn(message: Json, at_ms: float) -> Turn | None:
    """None for a message that is no turn, or one without an id."""
    turn_id = message.get("id")
    if message.get("type") != "turn" or not isinstance(turn_id, str) or not turn_id:
        return None
    return Turn(message, turn_id, at_ms)


def settled(messages: Iterable[Recorded], clock: FeedClock) -> Iterator[Turn]:
    """Every turn once, as its newest revision says, in the order in which they first came.

    Holds `REVISED_WITHIN` turns at a time. `clock` hears all messages.
    """
    open_turns: OrderedDict[str, Turn] = OrderedDict()
    for _, message in messages:
        clock.hear(message)
        turn = read_turn(message, clock.wall_ms(message))
        if turn is None:
            continue
        old = open_turns.get(turn.id)
        if old is None:
            open_turns[turn.id] = turn
            if len(open_turns) > REVISED_WITHIN:
                yield open_turns.popitem(last=False)[1]
        elif turn.revision > old.revision:
            open_turns[turn.id] = Turn(turn.message, turn.id, old.at_ms)
    yield from open_turns.values()


def numbers(value: Any) -> dict[str, float | None]:
    return {name: number(item) for name, item in (record(value) or {}).items()}


def record(value: Any) -> Json | None:
    return value if isinstance(value, dict) else None


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _span(item: Any) -> Iterator[Span]:
    if not isinstance(item, list) or len(item) < 3 or not isinstance(item[0], str):
        return
    start, end = number(item[1]), number(item[2])
    if start is not None and end is not None and end >= start:
        yield item[0], start, end


def _chunk(item: Any) -> Iterator[Chunk]:
    if not isinstance(item, dict):
        return
    start, duration = number(item.get("start_ms")), number(item.get("duration_ms"))
    if start is None or duration is None:
        return
    headroom = number(item.get("headroom_percent"))
    rolled_back = number(item.get("rolled_back")) or 0.0
    yield Chunk(start, duration, headroom, item.get("overrun") is True, rolled_back)
