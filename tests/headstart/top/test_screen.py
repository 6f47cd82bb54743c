"""State, tiles and screen, without a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.top.screen import View, lines
from headstart.top.source import dashboard_url
from headstart.top.state import TURNS_KEPT, State
from headstart.top.tiles import level_of, tiles
from tests.headstart.recordings.files import talk
from tests.headstart.recordings.test_turns import JUNK
from tests.web_demo.dashboard.feed_fixtures import Json, Server, conversation


def told(messages: list[Json]) -> State:
    state = State()
    for message in messages:
        state.apply(message)
    return state


def by_title(state: State) -> dict[str, Any]:
    return {tile.title: tile for tile in tiles(state)}


def test_the_tiles_say_what_the_feed_says() -> None:
    """Of a server that does well, and of one whose engine takes twice as long."""
    well = by_title(told(talk(seconds=120)))
    assert well["Sessions"].value == "6"
    assert well["First token"].level == "good"
    assert "p95" in well["First token"].note
    assert well["In budget"].value == "100 %"
    messages = talk(seconds=120)
    slow = [m | {"over_budget": True} if m["type"] == "turn" else m for m in messages]
    assert by_title(told(slow))["In budget"].level == "bad"
    assert by_title(told([messages[0]]))["First token"].value == "-"


def test_few_turns_give_no_p95() -> None:
    """Said, with how many there were."""
    server = Server(1)
    state = told([server.hello(), server.live(), *(server.turn() for _ in range(7))])
    assert by_title(state)["First token"].note == "p50 · n = 7, no p95"
    sound = by_title(state)["First sound"]
    assert (sound.note, sound.level) == ("p50 · n = 7, no p95", "good")


@pytest.mark.parametrize(
    ("value", "limits", "level"),
    [
        (None, (1, 2), "none"),
        (0.9, (1, 2), "good"),
        (1, (1, 2), "warn"),
        (2, (1, 2), "bad"),
        (21, (20, 0), "good"),
        (20, (20, 0), "warn"),
        (0, (20, 0), "bad"),
    ],
)
def test_levels(value: float | None, limits: tuple[float, float], level: str) -> None:
    """Thresholds that fall are read the other way round."""
    assert level_of(value, limits) == level


def test_old_turns_leave_the_window_and_the_memory() -> None:
    """The tiles tell of five minutes; 10,000 turns are held."""
    server = Server(1)
    state = told([server.hello(), server.live()])
    for _ in range(TURNS_KEPT + 50):
        state.apply(server.unmeasured_turn())
    assert len(state.turns) == TURNS_KEPT
    server.at_ms += 301_000
    state.apply(server.snapshot())
    assert state.recent() == []


def test_a_gap_is_said() -> None:
    """Of messages that never came, and of those that the server dropped."""
    messages = [m for m in talk(seconds=10) if m["seq"] != 4]
    assert "1 messages missed" in lines(told(messages), View())[0].plain


def test_another_run_starts_anew() -> None:
    """Its sessions and packets are its own; a clock that is behind hides nothing."""
    state = told(talk(seconds=60))
    again = Server(9, run="run_other", sessions=2)
    for message in conversation(again, 5):
        state.apply(message)
    assert [row["id"] for row in state.rows] == again.sessions
    assert state.dropped == 0


@given(
    width=st.integers(1, 200),
    height=st.none() | st.integers(1, 60),
    page=st.integers(0, 100),
    sessions=st.integers(0, 40),
    engines=st.integers(1, 12),
)
def test_it_never_leaves_its_rectangle(
    width: int, height: int | None, page: int, sessions: int, engines: int
) -> None:
    """Whatever the terminal's size, the page, and how many sessions and engines there are."""
    names = tuple(f"engine {number}" for number in range(engines))
    server = Server(1, sessions=max(1, sessions), engines=names)
    state = told([server.hello(), server.live(), server.turn(), server.error()])
    if not sessions:
        server.sessions = []
    state.apply(server.snapshot())
    shown = lines(state, View(width, height, "live", page, hint="q: quit"))
    assert all(line.cell_len <= width for line in shown)
    assert height is None or len(shown) <= height


def test_several_engines_are_told_apart() -> None:
    """One line for all of them, and where there is room a session's own; one engine has neither."""
    server = Server(1, sessions=4, engines=("east", "west"))
    state = told([server.hello(), server.live(), server.snapshot()])
    shown = [line.plain for line in lines(state, View(140, 40))]
    assert "2 engines · east 2 sessions, KV 12 % · west draining 2 sessions, KV 12 %" in shown
    heading = next(at for at, line in enumerate(shown) if line.startswith("session"))
    assert shown[heading].split()[-1] == "engine"
    rows = shown[heading + 1 : heading + 5]
    assert [row.split()[-1] for row in rows] == ["east", "west", "east", "west"]
    narrow = [line.plain for line in lines(state, View(100, 40))]
    assert not any(line.endswith("engine") for line in narrow)
    single = Server(1, sessions=4)
    state = told([single.hello(), single.live(), single.snapshot()])
    assert not any("engines" in line.plain for line in lines(state, View(140, 40)))


MESSAGES = [*talk(seconds=3), Server(1).error(), Server(1).chunk("sess_1a", 0)]


@given(st.sampled_from(MESSAGES), st.data())
def test_no_message_breaks_the_screen(message: Json, data: st.DataObject) -> None:
    """Whatever a field holds, or a field of a field."""
    state = told(talk(seconds=3))
    name = data.draw(st.sampled_from(sorted(message)))
    inner = message[name]
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        bad: Any = inner | {data.draw(st.sampled_from(sorted(inner))): data.draw(JUNK)}
    elif name == "rows" and data.draw(st.booleans()):
        row = inner[0]
        bad = [row | {data.draw(st.sampled_from(sorted(row))): data.draw(JUNK)}]
    else:
        bad = data.draw(JUNK)
    state.apply(message | {name: bad})
    for line in lines(state, View(120, 24, "live", hint="q: quit")):
        assert "\x1b" not in line.plain


@pytest.mark.parametrize(
    ("given_url", "url"),
    [
        ("127.0.0.1:8080", "ws://127.0.0.1:8080/v1/dashboard"),
        ("https://h/dashboard/#turn=x", "wss://h/v1/dashboard"),
        ("ws://h:1/v1/", "ws://h:1/v1/dashboard"),
        ("http://h/voice", "ws://h/voice/v1/dashboard"),
    ],
)
def test_the_feeds_address_is_found(given_url: str, url: str) -> None:
    """From whatever a person would type, or copy from the browser."""
    assert dashboard_url(given_url) == url
