"""What is told of sessions, in order, kept for newcomers and bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.dashboard.hub import MESSAGE_CHARS_MAX, Hub
from headstart.gateway.dashboard.messages import Message
from headstart.gateway.dashboard.ring import ERRORS_MAX, TURNS_MAX, Ring
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.runtime import tasks
from headstart.gateway.telemetry.latency import ChunkBudget
from tests.gateway.dashboard.records import NS_PER_MS, Clock, Json, hub_at, parsed, record


def greet(hub: Hub, watcher: Watcher | None = None) -> list[Json]:
    return parsed(hub.watch(watcher or Watcher(), lambda: {"version": 1}))


def taken(watcher: Watcher) -> list[Json]:
    lines = iter(watcher.take, None)
    return [json.loads(line) for line in lines]


def encoded(hub: Hub) -> list[bool]:
    return [message.is_encoded for message in hub.ring]


def chunk(session: str = "sess_1", latency_ms: float = 60.0) -> tuple[api.Chunk, ChunkBudget]:
    of = api.Chunk(session, api.TurnRef(3), 8000, 8000, {"encode": 20.0}, latency_ms, 4, 1)
    return of, ChunkBudget.from_chunk(of)


def test_a_newcomer_gets_the_ring_first() -> None:
    """A greeting, turns oldest first, errors, then the sign that it is live."""
    clock = Clock()
    hub = hub_at(clock)
    for number in range(3):
        clock.go(1000)
        hub.turn(record(f"resp_{number}"))
    hub.error("engine_lost", "It was lost.", "sess_1", "resp_2")
    told = greet(hub)
    assert [m["type"] for m in told] == ["hello", "turn", "turn", "turn", "error", "live"]
    assert [m["id"] for m in told[1:4]] == ["resp_0", "resp_1", "resp_2"]
    assert [m["seq"] for m in told] == [4, 1, 2, 3, 4, 4]
    assert told[1]["at_ms"] == 1000
    assert told[4] | {"seq": 0, "at_ms": 0} == {
        "type": "error",
        "seq": 0,
        "at_ms": 0,
        "code": "engine_lost",
        "message": "It was lost.",
        "session": "sess_1",
        "turn": "resp_2",
    }


def test_everybody_gets_the_same_bytes_in_order() -> None:
    """`seq` grows by one, whatever it is; who came later gets what he missed by the ring."""
    clock = Clock()
    hub = hub_at(clock)
    first, second = Watcher(), Watcher()
    hub.watch(first, dict)
    hub.opened("sess_1", "websocket")
    hub.turn(record("resp_1"))
    ring = {m.seq: m.line() for m in hub.watch(second, dict) if m.kind == "turn"}
    hub.turn(record("resp_2"))
    hub.snapshot({"sessions": {}})
    hub.closed("sess_1")
    lines = list(iter(first.take, None))
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[2:] == list(iter(second.take, None))
    assert ring[2] == lines[1]


def test_a_turn_is_told_with_what_the_server_knows_of_it() -> None:
    """The wall clock at its origin, its transport, and the state of its call."""
    clock = Clock()
    hub = hub_at(clock)
    hub.rtc_of = lambda session_id: {"lost_share": 0.0} if session_id == "sess_1" else None
    hub.opened("sess_1", "webrtc")
    hub.turn(record(at_ns=clock.ns + 1_500 * NS_PER_MS))
    turn = greet(hub)[1]
    assert turn["transport"] == "webrtc"
    assert turn["at"] == "2026-11-29T13:00:01.500Z"
    assert turn["rtc"] == {"lost_share": 0.0}


def test_a_newer_revision_stands_where_the_turn_stood() -> None:
    """Newcomers get it once, watchers get both."""
    hub = hub_at(Clock())
    watcher = Watcher()
    hub.watch(watcher, dict)
    hub.turn(record("resp_1"))
    hub.turn(record("resp_2"))
    hub.turn(record("resp_1", revision=2))
    told = greet(hub)
    assert [(m["id"], m["revision"], m["seq"]) for m in told[1:-1]] == [
        ("resp_1", 2, 3),
        ("resp_2", 1, 2),
    ]
    assert [m["revision"] for m in taken(watcher)] == [1, 1, 2]


def test_the_ring_is_bounded_in_turns_and_errors() -> None:
    """Ten thousand of each: the newest stay."""
    hub = hub_at(Clock())
    for number in range(10_000):
        hub.turn(record(f"resp_{number}", spans=2, chunks=1))
        hub.error("e", "m", None)
    told = greet(hub)
    turns = [m["id"] for m in told if m["type"] == "turn"]
    assert (len(turns), turns[0], turns[-1]) == (TURNS_MAX, "resp_8000", "resp_9999")
    assert sum(m["type"] == "error" for m in told) == ERRORS_MAX
    assert hub.errors == 10_000


def test_the_ring_is_bounded_in_bytes() -> None:
    """Turns of minutes are large: fewer of them are kept, and the books are right."""
    ring = Ring(turns_max=100, bytes_max=1_000)
    for number in range(50):
        ring.add_turn(f"resp_{number}", Message("turn", number, 0.0, dict), 300)
    assert (len(ring), ring.bytes) == (3, 900)
    ring.add_turn("resp_49", Message("turn", 50, 0.0, dict), 100)
    assert (len(ring), ring.bytes) == (3, 700)
    ring.add_turn("resp_50", Message("turn", 51, 0.0, dict), 5_000)
    assert (len(ring), ring.bytes) == (0, 0)


def test_nothing_is_encoded_while_nobody_looks() -> None:
    """Records wait as they are; the first reader has them encoded, once."""
    made: list[str] = []

    class Counted(Message):
        __slots__ = ()

    hub = hub_at(Clock())
    hub.turn(record())
    assert encoded(hub) == [False]
    hub.chunk(*chunk())
    told = hub.watch(Watcher(), dict)
    assert encoded(hub) == [False], "not even by somebody's coming"
    told[1].line()
    assert encoded(hub) == [True]

    def make() -> Json:
        made.append("made")
        return {}

    message = Counted("turn", 1, 0.0, make)
    assert message.line() == message.line()
    assert made == ["made"]


def test_chunks_go_only_to_those_who_want_them() -> None:
    """They take no number, so that nobody else misses any."""
    hub = hub_at(Clock())
    plain, curious = Watcher(), Watcher(wants_chunks=True)
    for watcher in (plain, curious):
        hub.watch(watcher, dict)
    hub.opened("sess_1", "websocket")
    hub.chunk(*chunk())
    hub.turn(record())
    assert [m["type"] for m in taken(plain)] == ["session", "turn"]
    told = taken(curious)
    assert [(m["type"], m["seq"]) for m in told] == [("session", 1), ("chunk", 1), ("turn", 2)]
    assert (told[1]["turn"], told[1]["prefilled"], told[1]["headroom_percent"]) == (3, 4, 96.0)


def test_sessions_are_summed_up_for_the_list() -> None:
    """Turns, the last one, the cache, headroom and overruns; gone with the session."""
    hub = hub_at(Clock())
    hub.opened("sess_1", "websocket")
    hub.turn(record("resp_1"))
    hub.turn(record("resp_1", revision=2))
    hub.chunk(*chunk(latency_ms=900.0))
    hub.detached("sess_1")
    hub.resumed("sess_1", "webrtc")
    view = hub.sessions["sess_1"]
    assert (view.turns, view.last_turn, view.overruns) == (1, "resp_1", 1)
    assert view.kv == {"tokens": 15, "by_modality": {"text": 15}, "evicted": 0}
    assert (view.headroom_percent, view.transport) == (96.0, "webrtc")
    hub.closed("sess_1")
    hub.closed("sess_1")
    hub.detached("sess_1")
    assert hub.sessions == {}


def test_a_clock_that_jumps_takes_nothing_with_it() -> None:
    """Back: `at_ms` stands still until it is caught up. Forward: it goes on from there."""
    clock = Clock()
    hub = hub_at(clock)
    watcher = Watcher()
    hub.watch(watcher, dict)
    for ms in (1_000, -60_000, 500, 3_600_000, -3_600_000):
        clock.go(ms)
        hub.error("e", "m", None)
    times = [m["at_ms"] for m in taken(watcher)]
    assert times == sorted(times)
    assert times[:3] == [1_000, 1_000, 1_000]
    assert hub.errors_last_minute == 2


def test_errors_of_the_last_minute_are_counted() -> None:
    """And their text is bounded."""
    clock = Clock()
    hub = hub_at(clock)
    hub.error("e", "m" * 5_000, None)
    clock.go(59_000)
    hub.error("e", "m", None)
    assert hub.errors_last_minute == 2
    clock.go(2_000)
    assert hub.errors_last_minute == 1
    assert len(greet(hub)[1]["message"]) == MESSAGE_CHARS_MAX


@pytest.mark.parametrize("broken", [{"at": object()}, {"text": "\ud800"}])
def test_a_message_that_cannot_be_encoded_harms_nobody(broken: dict[str, Any]) -> None:
    """It is reported; the feed goes on with its place in the order."""
    before = tasks.failures["dashboard message"]
    message = Message("turn", 7, 1.0, lambda: broken)
    assert json.loads(message.line()) == {"type": "turn", "seq": 7, "at_ms": 1.0}
    assert tasks.failures["dashboard message"] == before + 1
