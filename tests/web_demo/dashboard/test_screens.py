"""The nine screens in a real browser, over a feed that tests play."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.web_demo.conftest import OpenPage, PageOpener, chromium_alone
from tests.web_demo.dashboard.conftest import DashboardOpener
from tests.web_demo.dashboard.fake_feed import SCREENS, FakeFeed
from tests.web_demo.dashboard.feed_fixtures import Server

MARKUP = "<img src=x onerror=\"document.title='run'\"><b>bold</b>"


def go(page: Page, screen: str) -> None:
    page.locator(f"#nav a[href='#screen={screen}']").click()
    page.wait_for_selector(f"#{screen}")


def percentiles(page: Page) -> dict[str, list[str]]:
    """Stage -> the cells of its row."""
    rows = page.locator("table.percentiles tbody tr")
    cells: list[list[str]] = rows.evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return {row[0].split("\n")[0].split(" on ")[0]: row[1:] for row in cells}


def test_each_screen_is_filled(dashboard: OpenPage) -> None:
    """Charts with lines, tables with rows, tiles with words; the console stays silent."""
    page = dashboard.page
    tiles = page.locator("#strip .tile")
    assert tiles.count() == 8
    for tile in tiles.all():
        assert tile.get_attribute("data-level") in ("good", "warn", "bad", "none")
        assert tile.locator(".word").inner_text() in ("fine", "watch", "act", "no data")
        assert tile.locator("strong").inner_text() != ""
    for screen in SCREENS:
        go(page, screen)
        filled = page.locator(f"#{screen}")
        dashboard.until(lambda filled=filled: len(filled.inner_text()) > 60)  # type: ignore[misc]
        for chart in page.locator(f"#{screen} .plot").all():
            assert chart.locator("canvas, svg").count() == 1
            assert "newest:" in (chart.get_attribute("aria-label") or "")
    assert dashboard.complaints == []


def test_the_charts_are_the_librarys(dashboard: OpenPage) -> None:
    """Set-up fetched uPlot; its canvases are there, and they move their cursors together."""
    page = dashboard.page
    go(page, "engine")
    assert page.locator("#engine .u-over").count() == page.locator("#engine .plot").count()
    page.locator("#engine .u-over").first.hover(position={"x": 60, "y": 40})
    dashboard.until(lambda: all(page.locator("#engine .when").all_inner_texts()))


def test_the_page_is_complete_without_the_library(
    feed: FakeFeed, open_dashboard: DashboardOpener
) -> None:
    """Lines of its own, tables and waterfall; the missing file is all that the console says."""
    feed.without_charts = True
    opened = open_dashboard()
    feed.run(90, 120)
    for screen in ("engine", "percentiles", "keeping-up"):
        go(opened.page, screen)
        opened.page.wait_for_selector(f"#{screen} .plot svg :is(path, circle)")
    go(opened.page, "turn")
    opened.page.wait_for_selector(".waterfall .bar")
    naming_it = ("404", "uPlot.iife.min.js", "nosniff).")  # the last one is Firefox's
    missing = [text for text in opened.complaints if any(part in text for part in naming_it)]
    assert opened.complaints == missing


def test_sessions_are_sorted_filtered_and_pinned(dashboard: OpenPage, feed: FakeFeed) -> None:
    """A press on a heading sorts, a second one the other way; a pinned one stays on top."""
    page = dashboard.page

    def ages() -> list[str]:
        titles: list[str] = page.locator("table.sessions tbody th button").evaluate_all(
            "nodes => nodes.map(node => node.title)"
        )
        return titles

    oldest_first = sorted(feed.server.sessions, key=lambda s: feed.server.born_ms[s])
    assert ages() == oldest_first
    page.get_by_role("button", name="Age").click()
    page.wait_for_selector("th[aria-sort=ascending]")
    assert ages() == oldest_first[::-1]
    page.get_by_role("button", name=f"Pin {oldest_first[0]}").click()
    page.wait_for_selector("button.pin[aria-pressed=true]")
    assert ages() == [oldest_first[0], *oldest_first[:0:-1]]
    page.get_by_label("Filter").fill("webrtc")
    calls = [s for s in feed.server.sessions if int(s[-1], 16) % 2]
    dashboard.until(lambda: set(ages()) == set(calls))
    page.get_by_label("Filter").fill("nothing like it")
    page.get_by_text("No session fits the filter.").wait_for()


# What is touched in the table: ids of rows in which something changed, rows put in, rows taken out.
TOUCHED = """() => {
  const body = document.querySelector("table.sessions tbody");
  window.touched = { changed: new Set(), added: 0, removed: 0 };
  window.watches?.disconnect();
  window.watches = new MutationObserver((records) => {
    for (const { target, addedNodes, removedNodes } of records) {
      if (target === body) {
        window.touched.added += addedNodes.length;
        window.touched.removed += removedNodes.length;
      } else {
        const row = (target.closest ? target : target.parentElement)?.closest("tr");
        if (row) window.touched.changed.add(row.querySelector("th button").title);
      }
    }
  });
  window.watches.observe(body,
    { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def test_a_second_costs_what_has_changed(dashboard: OpenPage, feed: FakeFeed) -> None:
    """One session has begun to speak: its row alone is touched. One has ended: its row goes, and no
    other is moved."""
    page = dashboard.page

    def seen(snapshot: dict[str, Any]) -> dict[str, Any]:
        """What is touched when that is drawn."""
        page.evaluate(TOUCHED)
        feed.say(snapshot)
        page.wait_for_selector(f"body[data-newest='{snapshot['seq']}']")
        said: dict[str, Any] = page.evaluate(
            "() => ({ ...window.touched, changed: [...window.touched.changed] })"
        )
        return said

    first = feed.server.snapshot()
    rows = [row | {"state": "idle"} for row in first["rows"]]
    seen(first | {"rows": rows})
    rows = [row | {"age_s": row["age_s"] + 1} for row in rows]
    rows[1] |= {"state": "speaking", "headroom_percent": 50.0}
    second = seen(feed.server.snapshot() | {"rows": rows})
    assert second == {"changed": [rows[1]["id"]], "added": 0, "removed": 0}
    oldest = max(rows, key=lambda row: float(row["age_s"]))
    left = [row for row in rows if row is not oldest]
    third = seen(feed.server.snapshot() | {"rows": left})
    assert (third["added"], third["removed"]) == (0, 1)


@chromium_alone("DevTools tell how large the heap is")
def test_hours_of_a_feed_do_not_grow_the_page(
    feed: FakeFeed, open_dashboard: DashboardOpener
) -> None:
    """All that is kept has its bound after a quarter of an hour: then the ring has its 2,000 turns,
    and older seconds are so small that an hour of them hardly shows. An hour later the page holds
    what it held then."""
    feed.server = Server(sessions=2)
    page = open_dashboard().page
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")

    def held() -> tuple[int, int]:
        """Bytes of the heap and nodes of the document, after a collection, with all drawn."""
        page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
        for screen in (*SCREENS, "sessions"):
            go(page, screen)
        cdp.send("HeapProfiler.collectGarbage")
        metrics = cdp.send("Performance.getMetrics")["metrics"]
        (nodes,) = (metric["value"] for metric in metrics if metric["name"] == "Nodes")
        return cdp.send("Runtime.getHeapUsage")["usedSize"], nodes

    feed.say(*(feed.server.error() for _ in range(200)))  # as many as are listed
    feed.run(900, 150)
    heap_bytes, nodes = held()
    feed.run(3_000, 150)
    later_bytes, later_nodes = held()
    assert later_bytes < 1.06 * heap_bytes, (heap_bytes, later_bytes)
    assert later_nodes < 1.2 * nodes


def test_a_short_rest_has_kept_up(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """The last 60 ms of speech, through after 210: due with the next whole chunk, on every screen.
    A recording from before `due_ms` has the chunk's own length."""
    turn = feed.server.turn()
    rest = {"duration_ms": 60.0, "due_ms": 500.0, "latency_ms": 210.0, "headroom_percent": 58.0}
    turn["chunks"][-1] |= rest | {"start_ms": -60.0, "overrun": False}
    del turn["chunks"][0]["due_ms"]
    page = open_dashboard(f"#turn={turn['id']}").page
    feed.say(turn, feed.server.snapshot())
    page.wait_for_selector(".waterfall")
    titles = page.locator(".lane .deadline").evaluate_all("nodes => nodes.map(node => node.title)")
    assert any("kept, 210 ms of 500 ms" in title for title in titles)
    assert page.locator(".lane .deadline.missed").count() == 0
    go(page, "keeping-up")
    page.get_by_text(f"0 of {len(turn['chunks'])} chunks overran").wait_for()
    assert page.locator("#tile-headroom").get_attribute("data-level") == "good"


def test_several_engines_are_told_apart(dashboard: OpenPage, feed: FakeFeed) -> None:
    """A column of the sessions, which sorts and filters, and a table with why one takes no more.
    With a single engine there is neither."""
    page = dashboard.page
    heading = page.get_by_role("button", name="Engine", exact=True)
    assert not heading.is_visible()
    feed.server.engines = ("east", "west")
    feed.run(1, 0)
    heading.wait_for(state="visible")
    cells = page.locator("table.sessions tbody td.of-several")
    dashboard.until(lambda: {*cells.all_inner_texts()} == {"east", "west"})
    page.get_by_label("Filter").fill("west")
    dashboard.until(lambda: {*cells.all_inner_texts()} == {"west"})
    page.get_by_label("Filter").fill("")
    go(page, "engine")
    rows = page.locator("#engine .engines tbody tr")
    dashboard.until(lambda: rows.count() == 2)
    assert rows.nth(0).locator("th, td").all_inner_texts()[:4] == ["east", "ready", "here", "3"]
    assert "draining: retired by its operator" in rows.nth(1).inner_text()
    feed.server.engines = ("east",)
    feed.run(1, 0)
    page.locator("#engine .engines").wait_for(state="hidden")
    assert dashboard.complaints == []


def test_an_open_session_shows_its_chunks(dashboard: OpenPage, feed: FakeFeed) -> None:
    """Opened, the page asks for chunks; closed, it wants none, and the server is told."""
    page = dashboard.page
    session = feed.server.sessions[0]
    page.locator(f"button[title='{session}']").click()
    dashboard.until(lambda: feed.watched == [{"type": "watch", "chunks": True}])
    feed.say(*(feed.server.chunk(session, 8000 * i) for i in range(5)))
    dashboard.until(lambda: page.locator(".chunk-bars .chunk").count() == 5)
    page.get_by_role("button", name="Close").click()
    dashboard.until(lambda: feed.watched[-1] == {"type": "watch", "chunks": False})
    page.wait_for_selector(".chunk-bars", state="hidden")


def test_from_a_percentile_to_a_turn_by_mouse(dashboard: OpenPage) -> None:
    """p99 → the turns there → one waterfall: two clicks."""
    page = dashboard.page
    go(page, "percentiles")
    page.locator("table.percentiles tbody tr", has_text="first token").locator("button").nth(
        2
    ).click()
    found = page.locator("#picked table.turns tbody tr")
    found.first.wait_for()
    assert 1 <= found.count() <= 12  # of 300 turns those at p99 and above
    link = found.first.locator("a")
    turn = link.get_attribute("title") or "?"
    link.click()
    page.wait_for_selector(".waterfall")
    assert page.url.endswith(f"#turn={turn}")
    assert turn in page.locator(".headline").inner_text()
    assert dashboard.complaints == []


def test_from_a_percentile_to_a_turn_by_keyboard(dashboard: OpenPage) -> None:
    """The same without a mouse: the list takes the focus, and its first link is one Tab away."""
    page = dashboard.page
    go(page, "percentiles")
    button = page.locator("table.percentiles button.figure").nth(2)
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#picked:focus")
    for _ in range(3):  # Close, the list that scrolls, its first link
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#picked a') !== null")
    page.keyboard.press("Enter")
    page.wait_for_selector(".waterfall")
    assert "#turn=resp_" in page.url


def test_a_click_on_a_chart_lists_turns(dashboard: OpenPage) -> None:
    """Near a line's point: the turns of that percentile at that time. On the heatmap: the
    cell's."""
    page = dashboard.page
    go(page, "percentiles")
    page.locator("#percentiles .u-over").first.click(position={"x": 250, "y": 20})
    page.locator("#picked table.turns tbody tr").first.wait_for()
    page.get_by_role("button", name="Close").click()
    spot: dict[str, float] = page.evaluate(
        """() => {
          const canvas = document.querySelector('canvas.heatmap');
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const scale = canvas.width / canvas.clientWidth;
          for (let y = 0; y < canvas.height - 25; y += 2)
            for (let x = 70; x < canvas.width; x += 2)
              if (pixels.data[4 * (y * canvas.width + x) + 3] > 200)
                return { x: x / scale + 1, y: y / scale + 1 };
        }"""
    )
    page.locator("canvas.heatmap").click(position={"x": spot["x"], "y": spot["y"]})
    page.locator("#picked table.turns tbody tr").first.wait_for()


def test_few_turns_have_no_p99(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """n = 37: p50 and p95 are shown, and instead of p99 the reason."""
    page = open_dashboard("#screen=percentiles").page
    feed.say(*(feed.server.turn() for _ in range(37)), feed.server.snapshot())
    page.get_by_text("n = 37, no p99").first.wait_for()
    row = percentiles(page)["prefill reading the last tokens"]
    assert row[0] == "37"
    assert re.fullmatch(r"\d+ ms", row[1])
    assert row[3] == "n = 37, no p99"


def test_what_does_not_count_is_counted(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Interrupted, faster than real time and unmeasured: kept and shown, in no percentile."""
    page = open_dashboard("#screen=percentiles").page
    server = feed.server
    feed.say(*(server.turn() for _ in range(5)))
    feed.say(server.turn(interrupted=True, total_ms=90_000.0), server.turn(realtime=False))
    feed.say(server.unmeasured_turn(), server.snapshot())
    page.get_by_text(
        "5 turns; left out: 1 interrupted, 1 not in real time, 1 not measured"
    ).wait_for()
    assert percentiles(page)["first token from the last sound to the first token sent"][0] == "5"
    go(page, "turn")
    assert page.locator("#turn table.turns tbody tr").count() == 8
    page.get_by_text("not measured: not in the percentiles").wait_for()


def test_percentiles_are_right(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """To 1 %, against the turns themselves by nearest rank."""
    page = open_dashboard("#screen=percentiles").page
    turns = [feed.server.turn() for _ in range(400)]
    feed.say(*turns, feed.server.snapshot())
    page.locator("table.percentiles td").get_by_text("400", exact=True).first.wait_for()
    row = percentiles(page)["prefill reading the last tokens"]
    values = sorted(turn["stages_ms"]["prefill"] for turn in turns)
    for text, rank in zip(row[1:], (200, 380, 396), strict=True):
        value = values[rank - 1]
        shown_to = 0.01 * value + 0.5  # the sketch's own error, and whole ms
        assert float(text.removesuffix(" ms")) == pytest.approx(value, abs=shown_to)


def test_a_turn_that_comes_again_replaces_itself(
    feed: FakeFeed, open_dashboard: DashboardOpener
) -> None:
    """Heard later: the same turn with playout, once in lists and percentiles. An older revision
    that comes late changes nothing."""
    page = open_dashboard("#screen=turn").page
    first = feed.server.turn()
    again = feed.server.heard(first, delay_ms=321.0)
    feed.say(first, again, {**first, "seq": again["seq"] + 1}, feed.server.snapshot())
    page.get_by_text("321 ms from sent to heard, by the client").wait_for()
    assert page.locator("#turn table.turns tbody tr").count() == 1
    go(page, "percentiles")
    row = percentiles(page)["first token from the last sound to the first token sent"]
    assert row[0] == "1"


def test_the_waterfall_is_the_turn(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Bars lie where the spans lie: hidden work hatched and left of the endpoint, waits solid; each
    wait names its owner; deadlines and rollbacks are marked; the parts add up."""
    turn = feed.server.turn()
    turn = feed.server.heard(turn)
    turn["chunks"][1] |= {"overrun": True, "latency_ms": 510.0, "rolled_back": 2}
    page = open_dashboard(f"#turn={turn['id']}").page
    feed.say(turn, feed.server.snapshot())
    page.wait_for_selector(".waterfall")
    drawn: list[dict[str, Any]] = page.locator(".waterfall .bar").evaluate_all(
        """nodes => nodes.map(node => ({
             stage: node.dataset.stage, hidden: node.classList.contains('hidden'),
             left: node.offsetLeft, right: node.offsetLeft + node.offsetWidth,
             image: getComputedStyle(node).backgroundImage }))"""
    )
    end_of_wait = next(bar for bar in drawn if bar["stage"] == "vad_hangover")["right"]
    for bar in drawn:
        assert bar["hidden"] == ("gradient" in bar["image"])
        if bar["hidden"]:
            assert bar["right"] <= end_of_wait + 2
        elif bar["stage"] in ("prefill", "decode_first", "queue", "voice"):
            assert bar["left"] >= end_of_wait - 2
    stages = {bar["stage"] for bar in drawn if not bar["hidden"]}
    assert {"vad_hangover", "prefill", "decode_first", "voice", "playout"} <= stages
    assert page.locator(".lane .deadline.missed").count() == 1
    rolled = sum(chunk["rolled_back"] > 0 for chunk in turn["chunks"])
    assert page.locator(".lane .rollback").count() == rolled
    assert page.get_by_role("cell", name="setting silence_duration_ms = 500").count() == 1
    owners = page.locator("#turn td.owner").all_inner_texts()
    assert {"engine", "voice", "client"} <= set(owners)
    total = round(turn["total_ms"])
    page.get_by_text(f"the parts add up to {total} ms").wait_for()


def test_a_link_to_a_turn_opens_it(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Also if it comes only later; and one that is not kept is said to be so."""
    turns = [feed.server.turn() for _ in range(3)]
    page = open_dashboard(f"#turn={turns[0]['id']}").page
    page.wait_for_selector(".waterfall")
    assert turns[0]["id"] in page.locator(".headline").inner_text()
    page.goto(f"{feed.url}#turn=resp_gone")
    page.get_by_text("Turn resp_gone is not among the 3 turns kept here.").wait_for()
    feed.say({**turns[0], "id": "resp_gone", "seq": 90})
    page.wait_for_selector(".waterfall")


def test_errors_lead_to_their_turns(dashboard: OpenPage, feed: FakeFeed) -> None:
    """Newest first, by code, each with a link to its turn."""
    page = dashboard.page
    turn = feed.server.turn(reason="failed")
    error = feed.server.error(turn["id"], turn["session"])
    feed.say(turn, error, feed.server.snapshot())
    go(page, "errors")
    first = page.locator("#errors tbody tr").first
    first.get_by_text(error["message"]).wait_for()
    page.get_by_role("button", name=re.compile(f"^{error['code']} ")).click()
    page.wait_for_selector(f"#errors button[aria-pressed=true]:has-text('{error['code']} ')")
    codes = page.locator("#errors tbody th").all_inner_texts()
    assert set(codes) == {error["code"]}
    first.locator("a").click()
    assert turn["id"] in page.locator(".headline").inner_text()


def test_a_window_ranks_what_changed(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """The engine became twice as slow a minute ago: its stages lead the list, not the
    endpointing."""
    page = open_dashboard("#screen=percentiles").page
    feed.run(240, 90)
    feed.server.slow = 2.5
    feed.run(60, 90)
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    page.get_by_role("button", name="Rank the changes").click()
    ranked = page.locator("#changes tbody th").all_inner_texts()
    assert {"prefill", "decode_first", "voice"} & set(ranked[:4])
    assert "vad_hangover" not in ranked[:4]
    assert page.locator("#changes tbody td").first.inner_text().startswith("+")


def test_text_is_never_markup(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Whatever the feed says, in ids, words, codes, settings, stages: it is shown letter by
    letter."""
    server = Server(content=True)
    feed.server = server
    server.settings[MARKUP] = MARKUP
    page = open_dashboard("#screen=errors").page
    turn = server.turn(transport=MARKUP, reason=MARKUP, model=MARKUP)
    turn |= {"text": {"transcript": MARKUP, "answer": MARKUP}, "waits": {MARKUP: {"owner": MARKUP}}}
    turn["stages_ms"][MARKUP] = 700.0
    error = server.error(MARKUP) | {"code": MARKUP, "message": MARKUP}
    snapshot = server.snapshot()
    snapshot["rows"][0] |= {"state": MARKUP, "transport": MARKUP}
    snapshot["kv"]["level"] = MARKUP
    feed.say(turn, error, snapshot)
    page.locator("#errors .message", has_text=MARKUP).wait_for()
    for screen in SCREENS:
        go(page, screen)
        page.wait_for_timeout(100)
        assert page.locator("main img, main table b b, #strip img").count() == 0
    go(page, "turn")
    page.locator("dd", has_text=MARKUP).first.wait_for()
    assert "dashboard" in page.title()


def test_tiles_say_what_is_wrong(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """By the feed's own thresholds, in a word and a colour, and once to those who listen."""
    opened = open_dashboard()
    feed.run(30, 120)
    opened.page.wait_for_selector("#tile-within[data-level=good]")
    slow = [feed.server.turn(total_ms=900.0, over_budget=True) for _ in range(200)]
    feed.say(*slow, feed.server.snapshot())
    tile = opened.page.locator("#tile-within")
    opened.page.wait_for_selector("#tile-within[data-level=bad]")
    assert tile.locator(".word").inner_text() == "act"
    opened.page.locator("#announcer", has_text="In time").wait_for(state="attached")
    tile.locator("a").click()
    opened.page.wait_for_selector("#percentiles")


def test_no_sideways_scrolling(dashboard: OpenPage) -> None:
    """From a small phone to a desktop, each screen fits its width; wide tables scroll inside."""
    page = dashboard.page
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        for screen in (*SCREENS, "compare"):
            page.goto(re.sub("#.*", "", page.url) + f"#screen={screen}")
            page.wait_for_selector(f"#{screen}")
            page.wait_for_timeout(60)
            fits = page.evaluate("document.documentElement.scrollWidth")
            assert fits <= width, screen


def test_nothing_is_drawn_while_nobody_sees_it(
    browser: Browser, feed: FakeFeed, open_page: PageOpener
) -> None:
    """In a hidden tab messages are taken, and nothing is laid out; back in view all of it is
    there."""
    opened = open_page(browser, feed.url)
    page = opened.page
    page.wait_for_selector("body[data-feed=live]")
    feed.run(2, 60)
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    hide = """hidden => {
      Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    page.evaluate(
        """() => { window.changes = 0;
          new MutationObserver(() => { window.changes += 1; }).observe(
            document.body, { subtree: true, childList: true, characterData: true }); }"""
    )
    feed.run(5, 120)
    page.wait_for_timeout(1_500)
    assert page.evaluate("window.changes") == 0
    page.evaluate(hide, False)
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
