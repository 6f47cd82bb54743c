"""Turns out of messages: checked, once each, on the clock."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.recordings.bars import bars_of
from headstart.recordings.clock import FeedClock, epoch_ms, time_of_day
from headstart.recordings.faces import line, mini_bar, plain, waterfall
from headstart.recordings.reader import Recorded
from headstart.recordings.stages import owner_of
from headstart.recordings.turns import REVISED_WITHIN, Turn, read_turn, settled
from tests.headstart.recordings.files import newest, talk
from tests.web_demo.dashboard.feed_fixtures import Json, Server

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted(Server(1).turn())


def recorded(messages: list[Json]) -> list[Recorded]:
    return [Recorded(b"", message) for message in messages]


def test_each_turn_comes_once_as_its_newest_revision() -> None:
    """In the order in which they first came, at the time at which they did."""
    messages = talk()
    clock = FeedClock()
    turns = list(settled(recorded(messages), clock))
    assert {turn.id: turn.message for turn in turns} == newest(messages)
    assert [turn.id for turn in turns] == list(newest(messages))
    assert time_of_day(turns[0].at_ms).startswith("13:00:0")
    assert clock.missed == 0


def test_a_ring_that_comes_again_brings_nothing_new() -> None:
    """As after a reconnection in a feed that the page saved; an older revision changes nothing."""
    server = Server(1)
    once = [server.hello(), server.live(), server.turn(), server.heard(server.turn())]
    again = [server.hello(), *server.kept, server.live(), {**server.kept[1], "revision": 1}]
    turns = list(settled(recorded(once + again), FeedClock()))
    assert [turn.message for turn in turns] == server.kept


def test_few_turns_are_held_at_a_time() -> None:
    """One comes out for each that goes in, once as many are held as a server's ring."""
    server = Server(1)
    asked = 0

    def endless() -> Any:
        nonlocal asked
        yield Recorded(b"", server.hello())
        while True:
            asked += 1
            yield Recorded(b"", server.unmeasured_turn())

    turns = settled(endless(), FeedClock())
    for _ in range(50):
        next(turns)
    assert asked == REVISED_WITHIN + 50


def test_what_never_came_is_counted() -> None:
    """A gap in the numbers once the ring is over; what takes no number of its own is none."""
    messages = [m for m in talk(seconds=20) if m["seq"] not in (5, 6, 9)]
    clock = FeedClock()
    list(settled(recorded(messages), clock))
    assert clock.missed == 3


@given(name=st.sampled_from(FIELDS), junk=JUNK)
def test_no_message_breaks_a_turn(name: str, junk: Any) -> None:
    """Whatever a field holds, all that is made of a turn can be made."""
    turn = read_turn({**Server(1).turn(), name: junk}, 0.0)
    if turn is None:
        assert name in ("id", "type")
        return
    assert all(ms >= 0 for ms in turn.values.values())
    bars_of(turn)
    assert len(mini_bar(turn, 12)) == 12
    line(turn)
    waterfall(turn)
    assert turn.clip is None or isinstance(turn.clip, str)


def test_unknown_is_not_zero() -> None:
    """A turn that nobody could measure has no values, and its line says so."""
    turn = read_turn(Server(1).unmeasured_turn(), 0.0)
    assert turn is not None
    assert (turn.total_ms, turn.values, turn.left_out_as) == (None, {}, "unmeasured")
    assert "-" in line(turn).plain
    assert "not measured" in line(turn).plain


def turn_of(**changes: Any) -> Turn:
    turn = read_turn(Server(3).turn() | changes, 0.0)
    assert turn is not None
    return turn


def test_turns_that_do_not_count_say_why() -> None:
    """Interrupted comes first, as on the page."""
    assert turn_of(interrupted=True, total_ms=None).left_out_as == "interrupted"
    assert turn_of(realtime=False).left_out_as == "not_realtime"
    assert turn_of().left_out_as is None
    assert "not real time" in line(turn_of(realtime=False, over_budget=False)).plain


def test_clips_are_told_by_name_or_words() -> None:
    """A name goes before words; silence is no clip."""
    assert turn_of(clip="capital", text={"transcript": "x"}).clip == "clip capital"
    assert turn_of(text={"transcript": " What  is IT "}).clip == "text what  is it"
    assert turn_of(text={"transcript": "  "}).clip is None


def test_bars_fill_the_wait_and_mark_what_was_hidden() -> None:
    """From time 0 to the first token without a hole; nothing hidden behind the endpoint."""
    messages = [m for m in newest(talk()).values() if m["total_ms"] is not None and m["chunks"]]
    for message in random.Random(1).sample(messages, 20):
        turn = read_turn(message, 0.0)
        assert turn is not None
        endpoint = turn.stamps["endpoint"] or 0.0
        bars = bars_of(turn)
        assert all(bar.end_ms <= endpoint for bar in bars if bar.hidden)
        assert sum(bar.end_ms - bar.start_ms for bar in bars if bar.hidden) == pytest.approx(
            turn.hidden_ms, abs=0.1
        )
        visible = sorted(
            (b.start_ms, b.end_ms)
            for b in bars
            if not b.hidden and b.row not in ("voice", "playout")
        )
        at = 0.0
        for start, end in visible:
            assert start <= at + 0.6
            at = max(at, end)
        assert at == pytest.approx(turn.total_ms, abs=0.6)


def test_owners_are_told_in_words() -> None:
    """The setting with its value; a default where the record says nothing."""
    waits = {"vad_hangover": {"owner": "setting", "setting": "silence_duration_ms", "value": 500}}
    assert owner_of(waits, "vad_hangover") == "setting silence_duration_ms = 500"
    assert owner_of({}, "network") == "network"
    assert owner_of({"mel": 3}, "mel") == "engine"


def test_nothing_of_a_file_reaches_the_terminal_as_a_command() -> None:
    """Escapes in ids and reasons come out as harmless marks."""
    turn = turn_of(session="sess_\x1b[2J", reason="\x1b]0;title\x07", id="\x9bresp")
    assert "\x1b" not in line(turn).plain + plain(turn.id)
    assert "\x9b" not in plain(turn.id)


def test_times_of_no_calendar_are_unknown() -> None:
    """No exception, either."""
    assert epoch_ms("yesterday") is None
    assert epoch_ms(7) is None
    assert time_of_day(1e300) == "?"
    assert epoch_ms("2026-11-29T13:00:00.000Z") == 1795957200000.0
