"""The live feed: keys, cuts, gaps, restarts, nonsense, and how much of it the page keeps."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from tests.web_demo.conftest import OpenPage
from tests.web_demo.dashboard.conftest import DashboardOpener
from tests.web_demo.dashboard.fake_feed import SCREENS, FakeFeed
from tests.web_demo.dashboard.feed_fixtures import STARTED_AT, Server


def drawn(opened: OpenPage, feed: FakeFeed) -> None:
    opened.page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")


def test_a_cut_feed_comes_back(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """It says so, tries again, and shows what the ring brings once; what nobody can bring again is
    counted as missed."""
    opened = open_dashboard("#screen=turn")
    feed.run(3, 60)
    feed.say(feed.server.turn(), feed.server.snapshot())
    drawn(opened, feed)
    before = opened.page.locator("#turn table.turns tbody tr").count()
    feed.is_open = False
    feed.cut()
    opened.page.wait_for_selector("body[data-feed=lost]")
    assert "Trying again in" in opened.text("#state")
    turns = [feed.server.turn() for _ in range(2)]  # the ring has them
    lost = [feed.server.snapshot() for _ in range(3)]  # nobody has these
    feed.is_open = True
    opened.page.wait_for_selector("body[data-feed=live]")
    feed.say(feed.server.snapshot())
    drawn(opened, feed)
    assert f"{len(lost)} messages of the feed missed" in opened.text("#about")
    rows = opened.page.locator("#turn table.turns tbody tr")
    assert rows.count() == before + len(turns)
    # The browser reports the refused handshake; the page itself complains of nothing.
    assert [
        text for text in opened.complaints if "WebSocket" not in text and "503" not in text
    ] == []


def test_a_gap_is_shown(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """What was dropped on the way, by `seq`, and what the server says it dropped for this watcher;
    chunks have no number of their own."""
    opened = open_dashboard()
    server = feed.server
    feed.say(server.snapshot(), server.chunk(server.sessions[0], 0))
    for _ in range(7):
        server.turn()
    feed.say(server.snapshot())
    drawn(opened, feed)
    assert "7 messages of the feed missed" in opened.text("#about")
    feed.say(server.snapshot(dropped=2))
    drawn(opened, feed)
    assert "9 messages of the feed missed" in opened.text("#about")


def test_a_restarted_server_is_noticed(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Its clock and numbers begin again; the turns of before stay, at their times."""
    opened = open_dashboard("#screen=turn")
    feed.run(2, 0)
    feed.say(feed.server.turn(), feed.server.snapshot())
    drawn(opened, feed)
    feed.server = Server(5, run="run_next", started_at=STARTED_AT + timedelta(minutes=10))
    feed.cut()
    opened.until(lambda: feed.connections == 2)
    opened.page.wait_for_selector("body[data-feed=live]")
    feed.run(1, 0)
    feed.say(feed.server.turn(), feed.server.snapshot())
    opened.page.get_by_text("1 restart of the server").wait_for()
    drawn(opened, feed)  # the restart is shown with the new server's hello, before its turn
    assert "missed" not in opened.text("#about")
    times = opened.page.locator("#turn table.turns td:nth-child(2)").all_inner_texts()
    assert len(times) == 2
    assert times[0] > times[1]  # newest first, ten minutes apart


def test_a_clock_set_back_hides_nothing(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Restarted with a clock that is two days behind: its turns are in the percentiles all the
    same."""
    opened = open_dashboard("#screen=percentiles")
    feed.say(*(feed.server.turn() for _ in range(8)), feed.server.snapshot())
    opened.page.get_by_text("n = 8, no p95").first.wait_for()
    feed.server = Server(6, run="run_next", started_at=STARTED_AT - timedelta(days=2))
    feed.cut()
    opened.until(lambda: feed.connections == 2)
    opened.page.wait_for_selector("body[data-feed=live]")
    feed.say(*(feed.server.turn() for _ in range(5)), feed.server.snapshot())
    opened.page.get_by_text("n = 5, no p95").first.wait_for()


def test_few_spoken_turns_are_data(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Without a 95th percentile the tile of the first sound judges the median, as that of the first
    token does."""
    opened = open_dashboard()
    feed.say(*(feed.server.turn() for _ in range(3)), feed.server.snapshot())
    tile = opened.page.locator(".tile", has_text="First sound")
    tile.get_by_text("p50 · n = 3, no p95").wait_for()
    assert tile.locator(".word").inner_text() != "no data"


def test_a_key_is_asked_for(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """A wrong one is said to be wrong; the right one opens the feed, and is in no address."""
    feed.key = "sesame"
    opened = open_dashboard(live=False)
    page = opened.page
    page.get_by_label("This server needs an API key.").wait_for()
    page.fill("#key", "wrong")
    page.press("#key", "Enter")
    page.get_by_label("The server does not know that key.").fill("sesame")
    page.press("#key", "Enter")
    page.wait_for_selector("body[data-feed=live]")
    assert page.locator("#key-form").is_hidden()
    assert "sesame" not in page.url


def test_a_key_that_may_not_look(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """An ephemeral secret opens conversations and nothing else: said in a sentence."""
    feed.is_open, feed.status = False, 403
    opened = open_dashboard(live=False)
    opened.page.get_by_text("may not look at the dashboard").first.wait_for()


def test_a_server_without_a_feed(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """An older one: it is said, and tried again; recordings can be opened all the same."""
    feed.is_open = False
    opened = open_dashboard(live=False)
    opened.page.get_by_text("gives no dashboard feed").wait_for()
    assert opened.page.locator("#open-recording").is_enabled()


def test_a_silent_feed_is_called_silent(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Connected, and no snapshot for 5 s; one message more and it is live again."""
    opened = open_dashboard()
    opened.page.wait_for_selector("body[data-feed=silent]", timeout=15_000)
    feed.say(feed.server.snapshot())
    opened.page.wait_for_selector("body[data-feed=live]")


NONSENSE: list[Any] = [
    "not json",
    "[]",
    "null",
    '"text"',
    "{}",
    {"type": 5},
    {"type": "from_the_future", "seq": 1, "at_ms": 1.0},
    {"type": "turn", "seq": 1, "at_ms": 1.0},
    {"type": "turn", "seq": 1, "at_ms": "now", "id": "resp_x"},
    {"type": "snapshot"},
    {"type": "chunk", "at_ms": 1.0},
    {
        "type": "turn",
        "seq": 2,
        "at_ms": 2.0,
        "id": "resp_1",
        "stages_ms": 5,
        "spans": [["a"], 3, None],
    },
    {"type": "turn", "seq": 3, "at_ms": 3.0, "id": "resp_2", "total_ms": "x", "chunks": [{}, 7]},
    {
        "type": "turn",
        "seq": 4,
        "at_ms": 4.0,
        "id": "resp_3",
        "total_ms": -1.0,
        "stages_ms": {"q": -5},
    },
    {
        "type": "turn",
        "seq": 5,
        "at_ms": 5.0,
        "id": "resp_4",
        "total_ms": 1e12,
        "spans": [["p", 9, 1]],
    },
    {"type": "turn", "seq": 6, "at_ms": 5.0, "id": "__proto__", "stages_ms": {"__proto__": 3}},
    {
        "type": "snapshot",
        "seq": 7,
        "at_ms": 6.0,
        "rows": "none",
        "kv": None,
        "engine": 4,
        "rtc": [],
    },
    {"type": "snapshot", "seq": 8, "at_ms": 7.0, "rows": [None, 3, {"id": 5}, {"id": "sess_x"}]},
    {"type": "error", "seq": 9, "at_ms": 8.0},
    {"type": "session", "seq": 10, "at_ms": 9.0},
    {"type": "snapshot", "seq": 11, "at_ms": -1e15, "sessions": {"open": "many"}},
]


def test_nonsense_hurts_nothing(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Whatever comes: counted if it is no message, shown as far as it goes, and the page lives
    on."""
    opened = open_dashboard()
    feed.server.seq = 11
    feed.say(*NONSENSE)
    opened.page.get_by_text(re.compile(r"\d+ messages not understood")).wait_for()
    for screen in (*SCREENS[1:], SCREENS[0]):  # the page begins with the first
        opened.page.goto(f"{feed.url}#screen={screen}")
        opened.page.wait_for_selector(f"#{screen}")
        opened.page.wait_for_timeout(80)
    feed.say(feed.server.turn(), feed.server.snapshot())
    drawn(opened, feed)
    assert opened.complaints == []


def test_a_turn_of_the_future_or_past_leaves_the_rest(
    feed: FakeFeed, open_dashboard: DashboardOpener
) -> None:
    """Clocks may jump: the page goes by the server's own, which does not. A client that reports a
    playout before the sound, or in a year, is shown as it is, and nothing breaks."""
    opened = open_dashboard("#screen=turn")
    odd = []
    for delay_ms in (-5_000.0, 3.2e10):
        turn = feed.server.turn()
        odd += [turn, feed.server.heard(turn, delay_ms) | {"at": "1970-01-01T00:00:00.000Z"}]
    feed.say(*odd, feed.server.snapshot())
    opened.page.wait_for_selector(".waterfall")
    assert opened.page.locator("#turn table.turns tbody tr").count() == 2
    assert opened.complaints == []


@pytest.mark.parametrize("number", [10_000])
def test_memory_is_bounded(feed: FakeFeed, open_dashboard: DashboardOpener, number: int) -> None:
    """Of 10,000 turns in two hours the newest 2,000 are kept, an hour of seconds, and sketches of
    that hour; the page still answers at once."""
    opened = open_dashboard()
    made = opened.page.evaluate(
        """async ([hello, turn, snapshot, number]) => {
          const { Store } = await import('/dashboard/data/store.js');
          const store = new Store();
          store.apply(hello);
          store.apply({ type: 'live', seq: 0 });
          let seq = 0;
          for (let i = 0; i < number; i += 1) {
            const at_ms = (i * 7_200_000) / number;
            const id = `resp_${i}`;
            store.apply({ ...turn, id, seq: ++seq, at_ms, total_ms: 100 + (i % 900) });
            if (i % 2 === 0) store.apply({ ...snapshot, seq: ++seq, at_ms });
          }
          const { series } = store;
          return {
            turns: store.turns.size, oldest: store.turns.keys().next().value,
            snapshots: store.snapshots.length, slots: series.fine.size + series.coarse.size,
            seen: store.turnsSeen, missed: store.missed,
            n: series.between(0, Infinity).get('total').n,
          };
        }""",
        [feed.server.hello(), feed.server.turn(), feed.server.snapshot(), number],
    )
    assert made["turns"] == 2_000
    assert made["oldest"] == f"resp_{number - 2_000}"
    assert made["seen"] == number
    assert made["missed"] == 0
    assert made["snapshots"] <= 660
    assert made["slots"] <= 3_300 / 10 + 302
    assert made["n"] == pytest.approx(number / 2, rel=0.01)  # the second of the two hours


def test_ten_thousand_turns_over_the_feed(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """At once, as a burst: all screens answer, and the newest turns are those kept."""
    opened = open_dashboard("#screen=percentiles")
    page = opened.page
    turn = feed.server.turn()
    fields = {k: v for k, v in turn.items() if k not in ("seq", "at_ms", "type")}
    last = ""
    for i in range(10_000):
        last = f"resp_{i:05d}"
        feed.say(json.dumps(feed.server.message("turn", **fields | {"id": last})))
    feed.say(feed.server.snapshot())
    drawn(opened, feed)
    page.locator("#nav a[href='#screen=turn']").click()
    page.locator(f"#turn a[title='{last}']").wait_for()
    for screen in ("percentiles", "keeping-up", "sessions"):
        page.locator(f"#nav a[href='#screen={screen}']").click()
        page.wait_for_selector(f"#{screen}")
    assert opened.complaints == []
