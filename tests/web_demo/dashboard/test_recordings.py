"""Recordings in the browser: saved, opened, replayed, exported, compared; and files that are
none."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Download, Page, Route

from tests.web_demo.conftest import OpenPage, chromium_alone
from tests.web_demo.dashboard.conftest import DashboardOpener
from tests.web_demo.dashboard.fake_feed import FakeFeed
from tests.web_demo.dashboard.feed_fixtures import Json, Server, conversation, gzipped, jsonl

SECONDS = 60
TURNS_PER_MIN = 90
FILE_INPUT = "#tools input[type=file]"


def recorded(seed: int = 3, seconds: int = SECONDS, **server: Any) -> list[Json]:
    return list(conversation(Server(seed, run=f"run_{seed}", **server), seconds, TURNS_PER_MIN))


def open_file(page: Page, name: str, data: bytes, selector: str = FILE_INPUT) -> None:
    kind = "application/gzip" if name.endswith("gz") else "application/json"
    page.set_input_files(selector, {"name": name, "mimeType": kind, "buffer": data})


def ids_of(messages: list[Json]) -> set[str]:
    return {message["id"] for message in messages if message["type"] == "turn"}


def loaded(page: Page) -> None:
    page.wait_for_selector("body[data-shows=recording]")
    page.wait_for_selector("#replay input[type=range]:enabled")


def saved(page: Page, press: Callable[[], None]) -> tuple[str, bytes]:
    with page.expect_download() as info:
        press()
    done: Download = info.value
    return done.suggested_filename, Path(done.path()).read_bytes()


def export(page: Page, item: str) -> tuple[str, bytes]:
    page.locator(".menu summary").click()
    return saved(page, lambda: page.get_by_role("button", name=item, exact=True).click())


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_a_recording_is_opened(open_dashboard: DashboardOpener, packed: bool) -> None:
    """Gzipped or not: its end is shown, with all its turns, and the feed goes on behind it."""
    messages = recorded()
    opened = open_dashboard()
    data = gzipped(messages) if packed else jsonl(messages)
    open_file(opened.page, "run.jsonl.gz" if packed else "run.jsonl", data)
    loaded(opened.page)
    opened.page.get_by_text(f"{len(ids_of(messages))} turns.").wait_for()
    assert opened.page.locator("table.sessions tbody tr").count() == 6
    opened.page.get_by_role("button", name="Back to live").click()
    opened.page.wait_for_selector("body[data-shows=live]")
    opened.page.get_by_text("Nobody is connected.").wait_for()
    assert opened.complaints == []


def test_a_dropped_recording_is_opened(open_dashboard: DashboardOpener) -> None:
    """Dragged onto the page."""
    page = open_dashboard().page
    drop = """text => {
      const data = new DataTransfer();
      data.items.add(new File([text], 'dropped.jsonl'));
      for (const type of ['dragover', 'drop'])
        document.body.dispatchEvent(
          new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(drop, jsonl(recorded(seconds=5)).decode())
    loaded(page)
    assert "dropped.jsonl" in page.locator("#replay").inner_text()


def test_a_recording_without_a_server(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Opened where no feed is to be had."""
    feed.is_open = False
    page = open_dashboard(live=False).page
    open_file(page, "run.jsonl.gz", gzipped(recorded(seconds=10)))
    loaded(page)
    assert "no live feed" in page.locator("#state").inner_text()


TRUNCATED = jsonl(recorded(seconds=20))[:-100]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.jsonl", TRUNCATED),
        ("cut.jsonl.gz", gzip.compress(TRUNCATED)),
        ("killed.jsonl.gz", gzip.compress(TRUNCATED, mtime=0)[:-1500]),
    ],
)
def test_a_truncated_recording_is_shown_as_far_as_it_goes(
    open_dashboard: DashboardOpener, name: str, data: bytes
) -> None:
    """Cut in mid line, or in the midst of the gzip stream, as a killed server leaves it."""
    opened = open_dashboard()
    open_file(opened.page, name, data)
    loaded(opened.page)
    opened.page.get_by_text("The file breaks off at its end; what came before is shown.").wait_for()
    assert opened.page.locator("table.sessions tbody tr").count() == 6
    assert opened.complaints == []


HELLO = Server().hello()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"PK\x03\x04 a zip", "its first line is not JSON"),
        (b'{"type":"turn"}\n', "does not begin with a “hello” message"),
        (b"[1,2]\n", "does not begin with a “hello” message"),
        (jsonl([HELLO | {"version": 2}]), "has format version 2; this page reads version 1"),
        (jsonl([HELLO | {"version": None}]), "has format version null"),
        (b"\x1f\x8b\x08 broken", "could not be unpacked"),
        (gzip.compress(b"\x00\xff" * 9_000, mtime=0), "its first line is not JSON"),
        (jsonl([HELLO]) + b"x\n" * 1_002, "more than 1000 of its lines are not JSON"),
        (b"x" * (17 << 20), "a line of more than 16 MiB"),
    ],
    ids=lambda value: value[:60] if isinstance(value, bytes) else value,
)
def test_other_files_are_refused_in_a_sentence(
    open_dashboard: DashboardOpener, data: bytes, said: str
) -> None:
    """The file is named, and what is wrong with it; the live feed stays on the page."""
    opened = open_dashboard()
    open_file(opened.page, "some.file", data)
    notice = opened.page.locator("#notice", has_text=said)
    notice.wait_for()
    assert notice.inner_text().startswith("some.file ")
    opened.page.wait_for_selector("body[data-shows=live]")  # drawn in the frame behind the notice
    assert opened.page.locator("#replay").is_hidden()
    assert opened.complaints == []


def test_bad_lines_are_left_out(open_dashboard: DashboardOpener) -> None:
    """In the midst of a good file: counted and said."""
    messages = recorded(seconds=10)
    data = jsonl(messages[:20]) + b'{"type":"tu\n\n' + jsonl(messages[20:])
    page = open_dashboard().page
    open_file(page, "run.jsonl", data)
    page.get_by_text("One line was no JSON and left out.").wait_for()
    page.get_by_text(f"{len(ids_of(messages))} turns.").wait_for()


@chromium_alone("DevTools tell how large the heap is")
def test_a_huge_recording_is_read_in_bounded_memory(open_dashboard: DashboardOpener) -> None:
    """A file of 1 GB, made in the page as a stream: what is kept does not grow with it, and the
    page answers while it is read. (It has 100 MB here, and no end of it is ever in memory.)"""
    opened = open_dashboard()
    devtools = opened.page.context.new_cdp_session(opened.page)

    def heap_bytes() -> float:
        """What the page holds on to: what waits to be collected is not counted."""
        devtools.send("HeapProfiler.collectGarbage")
        used: float = devtools.send("Runtime.getHeapUsage")["usedSize"]
        return used

    turn = Server().turn()
    before_bytes = heap_bytes()
    grown: Json = opened.page.evaluate(
        """async ([hello, turn]) => {
          const { Player } = await import('/dashboard/files/player.js');
          const made = (i) => ({ ...turn, id: `resp_${i}`, seq: i, at_ms: i * 50 });
          const line = (i) => `${JSON.stringify(made(i))}\\n`;
          const encoder = new TextEncoder();
          let i = 0;
          let bytes = 0;
          const stream = () => new ReadableStream({
            pull(controller) {
              let text = i === 0 ? `${JSON.stringify(hello)}\\n` : '';
              for (let n = 0; n < 200; n += 1) text += line(++i);
              const piece = encoder.encode(text);
              bytes += piece.byteLength;
              controller.enqueue(piece);
              if (bytes > 100e6) controller.close();
            },
          }, { highWaterMark: 1 });
          const file = { name: 'huge.jsonl', size: 1e9, stream, slice: () => new Blob(['{"']) };
          let changes = 0;
          let most = 0;
          const player = new Player(file, { onChange: () => {
            changes += 1;
            most = Math.max(most, player.store.turns.size);
          } });
          await player.load();
          window.loaded = player; // kept, so that what it holds can be measured
          return { changes, most, seen: player.store.turnsSeen, bytes };
        }""",
        [HELLO, turn],
    )
    assert grown["bytes"] > 100e6
    assert grown["seen"] > 10_000
    assert grown["most"] == 2_000
    assert grown["changes"] > 20  # the page drew in between
    assert heap_bytes() - before_bytes < 0.9 * grown["bytes"]


# --- replay --------------------------------------------------------------------------------------


def test_replay_goes_at_its_pace(open_dashboard: DashboardOpener) -> None:
    """From the start, ten times as fast, paused, and turn by turn."""
    messages = recorded(seconds=120)
    opened = open_dashboard("#screen=turn")
    page = opened.page
    open_file(page, "run.jsonl.gz", gzipped(messages))
    loaded(page)
    rows = page.locator("#turn table.turns tbody tr")

    page.get_by_role("button", name="To the start").click()
    page.get_by_text(re.compile(r"^0 s of 2 min 0 s$")).wait_for()
    in_order = [m["id"] for m in messages if m["type"] == "turn"]
    page.get_by_role("button", name="Next turn").click()
    page.locator("#turn .headline", has_text=in_order[0]).wait_for()
    before = rows.count()
    page.get_by_role("button", name="Next turn").click()
    opened.until(lambda: rows.count() == before + 1 or rows.count() == 25)

    page.get_by_label("Speed").select_option("10")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_text(re.compile(r"^[123]\d s of 2 min 0 s$")).wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").wait_for()
    where = page.locator("#replay .when").inner_text()
    page.wait_for_timeout(600)
    assert page.locator("#replay .when").inner_text() == where


def test_replay_is_moved_by_keyboard(open_dashboard: DashboardOpener) -> None:
    """The slider goes forth and back; back, what came later is gone."""
    messages = recorded(seconds=100)
    opened = open_dashboard()
    page = opened.page
    open_file(page, "run.jsonl", jsonl(messages))
    loaded(page)
    page.locator("#replay input[type=range]").focus()
    page.keyboard.press("Home")
    page.get_by_text("0 s of 1 min 40 s").wait_for()
    page.keyboard.press("PageUp")  # a tenth
    page.get_by_text(re.compile(r"^(9|1\d) s of 1 min 40 s$")).wait_for()
    page.keyboard.press("End")
    page.get_by_text(f"{len(ids_of(messages))} turns.").wait_for()


# --- saving and exporting ------------------------------------------------------------------------


@chromium_alone("Playwright gets no download from Firefox")
def test_the_feed_is_saved_as_it_came(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """Line by line what the server sent; the file opens on this page again."""
    opened = open_dashboard()
    page = opened.page
    feed.run(20, 120)
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    name, data = saved(page, lambda: page.get_by_role("button", name="Save feed").click())
    assert re.fullmatch(r"headstart-[\dT-]+\.jsonl\.gz", name)
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    assert [line["type"] for line in lines[:2]] == ["hello", "live"]
    assert lines[2:] == feed.said
    assert sum(line["type"] == "snapshot" for line in lines) == 20
    open_file(page, name, data)
    loaded(page)
    page.get_by_text(f"{len(ids_of(feed.said))} turns.").wait_for()


def test_old_pieces_of_the_feed_are_let_go(open_dashboard: DashboardOpener) -> None:
    """An hour of minutes is kept; what is saved later begins with the greeting all the same."""
    opened = open_dashboard()
    lines: list[str] = opened.page.evaluate(
        """async () => {
          const { Recorder } = await import('/dashboard/files/recorder.js');
          const recorder = new Recorder();
          recorder.add('{"type":"hello"}', true, 0);
          for (let minute = 0; minute < 90; minute += 1)
            recorder.add(`{"minute":${minute}}`, false, minute * 60_001);
          const blob = await recorder.save();
          const text = await new Response(
            blob.stream().pipeThrough(new DecompressionStream('gzip'))).text();
          return text.trim().split('\\n');
        }"""
    )
    assert lines[0] == '{"type":"hello"}'
    assert len(lines) == 61
    assert lines[-1] == '{"minute":89}'


@chromium_alone("Playwright gets no download from Firefox")
def test_turns_are_exported(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """As JSON, the very messages; as CSV, a line a turn, with empty fields for what is not
    known."""
    page = open_dashboard().page
    turns = [feed.server.turn(), feed.server.unmeasured_turn()]
    turns.append(feed.server.turn(model='=HYPERLINK("x"), a "model"'))
    feed.say(*turns, feed.server.snapshot())
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    name, data = export(page, "JSON")
    assert name.endswith(".json")
    whole = json.loads(data)
    assert whole["turns"] == turns
    assert whole["settings"] == feed.server.settings
    name, data = export(page, "CSV")
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert [row["id"] for row in rows] == [turn["id"] for turn in turns]
    assert float(rows[0]["total_ms"]) == turns[0]["total_ms"]
    assert float(rows[0]["prefill_ms"]) == turns[0]["stages_ms"]["prefill"]
    assert rows[1]["total_ms"] == ""
    assert rows[2]["model"] == '\'=HYPERLINK("x"), a "model"'  # no formula in a spreadsheet


def test_without_turns_there_is_nothing_to_export(open_dashboard: DashboardOpener) -> None:
    """Said, instead of an empty file."""
    page = open_dashboard().page
    page.locator(".menu summary").click()
    page.get_by_role("button", name="CSV", exact=True).click()
    page.get_by_text("There is no turn to export yet.").wait_for()


def fields(data: bytes) -> list[tuple[int, Any]]:
    """A protobuf message's fields: numbers, or bytes. An independent reading of the wire format."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while at < len(data):
        field, kind = divmod(varint(), 8)
        if kind == 0:
            found.append((field, varint()))
            continue
        length = {1: 8, 5: 4}.get(kind) or varint()
        found.append((field, data[at : at + length]))
        at += length
    return found


@chromium_alone("Playwright gets no download from Firefox")
def test_the_perfetto_trace_is_the_turns(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """One track a stage under one a session; each slice that begins ends, within its track in
    order."""
    page = open_dashboard().page
    turns = [feed.server.heard(feed.server.turn()) for _ in range(6)]
    feed.say(*turns, feed.server.snapshot())
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    name, data = export(page, "Perfetto trace")
    assert name.endswith(".perfetto-trace")
    packets = [dict(fields(body)) for number, body in fields(data) if number == 1]
    tracks = [dict(fields(p[60])) for p in packets if 60 in p]
    names = {track[1]: track[2].decode() for track in tracks}
    parents = {track[1]: track.get(5) for track in tracks}
    sessions = {turn["session"] for turn in turns}
    assert {names[uuid] for uuid, parent in parents.items() if parent is None} == sessions
    assert {"vad_hangover", "prefill", "voice", "playout", "turn"} <= set(names.values())
    open_since: dict[int, int] = {}
    lengths: list[float] = []
    for packet in packets:
        if 11 not in packet:
            continue
        event = dict(fields(packet[11]))
        if event[9] == 1:
            assert event[11] not in open_since
            open_since[event[11]] = packet[8]
        elif event[9] == 2:
            start = open_since.pop(event[11])
            assert packet[8] > start
            if names[event[11]] == "vad_hangover":
                lengths.append((packet[8] - start) / 1e6)
    assert open_since == {}
    wanted = sorted(turn["stages_ms"]["vad_hangover"] for turn in turns)
    assert sorted(lengths) == pytest.approx(wanted, abs=0.01)


PERFETTO_PAGE = """<!doctype html><title>not Perfetto</title><script>
addEventListener('message', ({ data, source, origin }) => {
  if (data === 'PING') source.postMessage('PONG', origin);
  if (data.perfetto) document.title = `${data.perfetto.title}: ${data.perfetto.buffer.byteLength}`;
});</script>"""


def test_perfetto_is_asked_about_first(feed: FakeFeed, open_dashboard: DashboardOpener) -> None:
    """“Open in Perfetto” says that it leaves our page; only then is anything sent, to that page."""
    opened = open_dashboard()
    page, context = opened.page, opened.page.context
    asked = stand_in(context)
    feed.say(feed.server.turn(), feed.server.snapshot())
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Open in Perfetto…").click()
    dialog = page.get_by_role("dialog", name="This leaves our page")
    assert "ui.perfetto.dev" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert asked == []
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Open in Perfetto…").click()
    with context.expect_page() as info:
        dialog.get_by_role("button", name="Open in Perfetto").click()
    other = info.value
    opened.until(lambda: other.title().startswith("headstart, 1 turn: "))
    assert asked != []


def stand_in(context: BrowserContext) -> list[str]:
    """A page of ours answers for Perfetto's; nothing leaves this machine."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(content_type="text/html", body=PERFETTO_PAGE)

    context.route("https://ui.perfetto.dev/**", answer)
    return asked


# --- comparing -----------------------------------------------------------------------------------


def rows_of(opened: OpenPage) -> dict[str, list[str]]:
    rows = opened.page.locator("#compare table").last.locator("tbody tr")
    cells: list[list[str]] = rows.evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return {row[0]: row[1:] for row in cells}


def slow(seed: int, factor: float, **server: Any) -> list[Json]:
    made = Server(seed, run=f"run_{seed}", content=True, **server)
    made.slow = factor
    return [made.hello(), made.live(), *(made.turn() for _ in range(150)), made.snapshot()]


def test_two_recordings_are_compared(open_dashboard: DashboardOpener) -> None:
    """Settings that differ first; then by stage p50 and p95, the change and its interval: twice the
    engine's work is called slower, the endpointing is not."""
    opened = open_dashboard("#screen=compare")
    page = opened.page
    a, b = (f"#compare input[type=file] >> nth={i}" for i in (0, 1))
    open_file(page, "a.jsonl.gz", gzipped(slow(1, 1.0)), a)
    open_file(page, "b.jsonl", jsonl(slow(2, 2.0, settings={"threads": 1})), b)
    page.get_by_role("rowheader", name="threads").wait_for()
    rows = rows_of(opened)
    pairs = re.search(r"(\d+) pairs of turns that heard the same", opened.text("#compare"))
    assert pairs is not None
    assert rows["prefill"][0] == f"{pairs[1]}, {pairs[1]}"
    assert 100 < int(pairs[1]) <= 150
    assert "slower" in rows["prefill"][3]
    assert "slower" in rows["first token"][3]
    assert "slower" not in rows["vad_hangover"][3]
    page.get_by_role("button", name="Swap A and B").click()
    opened.until(lambda: "faster" in rows_of(opened).get("prefill", [""] * 4)[3])


def test_a_recording_is_compared_with_the_live_feed(
    feed: FakeFeed, open_dashboard: DashboardOpener
) -> None:
    """B is what the page shows; of one side alone there is nothing to say."""
    opened = open_dashboard("#screen=compare")
    page = opened.page
    feed.say(*(feed.server.turn() for _ in range(60)), feed.server.snapshot())
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("Both sides are the same.").wait_for()
    open_file(page, "a.jsonl", jsonl(slow(4, 1.0)), "#compare input[type=file] >> nth=0")
    opened.until(lambda: "first token" in rows_of(opened))
    assert rows_of(opened)["first token"][0] == "150, 60"
    open_file(page, "b.txt", b"no", "#compare input[type=file] >> nth=1")
    page.get_by_text("b.txt is not a recording").wait_for()


def test_the_bootstrap_interval_is_right(open_dashboard: DashboardOpener) -> None:
    """It covers the true difference of two known populations in about 95 % of draws, pairs make it
    narrower where clips differ more than runs do, and the same input gives the same interval."""
    page = open_dashboard().page
    found: Json = page.evaluate(
        """async () => {
          const { interval, randomFrom } = await import('/dashboard/data/compare.js');
          const draw = randomFrom(7);
          const angle = () => Math.cos(2 * Math.PI * draw());
          const normal = () => Math.sqrt(-2 * Math.log(1 - draw())) * angle();
          let covered = 0;
          let narrower = 0;
          for (let trial = 0; trial < 200; trial += 1) {
            const clips = Array.from({ length: 80 }, () => 500 + 100 * normal());
            const a = clips.map((ms) => ms + 10 * normal());
            const b = clips.map((ms) => ms + 30 + 10 * normal());
            const free = interval(a, [...b].reverse(), 0.5, false, randomFrom(trial));
            const pairs = interval(a, b, 0.5, true, randomFrom(trial));
            covered += free[0] <= 30 && 30 <= free[1];
            narrower += pairs[1] - pairs[0] < free[1] - free[0];
          }
          const again = () => interval([1, 2, 3, 9], [2, 4, 6, 8], 0.5, false, randomFrom(1));
          return { covered, narrower, same: String(again()) === String(again()) };
        }"""
    )
    assert found["covered"] >= 185
    assert found["narrower"] >= 190
    assert found["same"]
