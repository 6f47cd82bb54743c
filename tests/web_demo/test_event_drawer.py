"""The event drawer: runs collapsed, media as sizes, secrets left out, bounded, saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.web_demo.conftest import OpenPage, chromium_alone
from tests.web_demo.mock_gateway import MockGateway, Script

LOG = """async (events) => {
  const { EventLog } = await import("./event-log.js");
  let now = 100;
  const log = new EventLog(() => now);
  for (const [afterMs, direction, event] of events) { now += afterMs; log.add(direction, event); }
  return { entries: log.entries, saved: JSON.parse(log.save()), dropped: log.dropped };
}"""
Json = dict[str, Any]
SOUND = "A" * 4_000


def logged(workbench: Page, *events: tuple[float, str, Json]) -> Json:
    result: Json = workbench.evaluate(LOG, [list(event) for event in events])
    return result


def append() -> Json:
    return {"type": "input_audio_buffer.append", "audio": SOUND}


def hearing(item: str) -> Json:
    return {"type": "gateway.hearing", "item_id": item, "committed": "a", "tentative": ""}


def test_runs_are_one_line_with_a_count(workbench: Page) -> None:
    """Sound that goes out and words that come in between each other are two lines; what happens in
    between ends them, as does another item."""
    result = logged(
        workbench,
        (1, "sent", append()),
        (1, "received", hearing("u1")),
        (1, "sent", append()),
        (1, "received", hearing("u1")),
        (1, "received", {"type": "input_audio_buffer.speech_stopped", "item_id": "u1"}),
        (1, "sent", append()),
        (1, "received", hearing("u2")),
    )
    told = [(e["direction"], e["type"], e["count"], e["atMs"]) for e in result["entries"]]
    assert told == [
        ("sent", "input_audio_buffer.append", 2, 1),
        ("received", "gateway.hearing", 2, 2),
        ("received", "input_audio_buffer.speech_stopped", 1, 5),
        ("sent", "input_audio_buffer.append", 1, 6),
        ("received", "gateway.hearing", 1, 7),
    ]
    assert result["entries"][0]["bytes"] == 6_000
    assert result["saved"]["events"][0]["event"]["audio"] == "(3000 bytes)"


def test_secrets_are_left_out(workbench: Page) -> None:
    """The token by which the conversation could be taken over is in no saved file."""
    event = {"type": "gateway.session.resumable", "token": "secret-token"}
    result = logged(workbench, (1, "received", event))
    assert "secret-token" not in json.dumps(result["saved"])


def test_a_long_session_does_not_grow(workbench: Page) -> None:
    """The newest 2,000 lines are kept, and it is counted what went."""
    many = [(1.0, "received", {"type": f"kind.{i}"}) for i in range(2_500)]
    result = logged(workbench, *many)
    assert (len(result["entries"]), result["dropped"]) == (2_000, 500)
    assert result["entries"][0]["type"] == "kind.500"


def rows(demo: OpenPage) -> list[str]:
    return demo.page.locator("#drawer-list .type").all_inner_texts()


@chromium_alone("Playwright gets no download from Firefox")
def test_the_drawer_shows_filters_and_saves(
    demo: OpenPage, mock: MockGateway, tmp_path: Path
) -> None:
    """Direction, elapsed time, counts; an event's JSON when it is opened, with sizes for media."""
    mock.script = Script(sound_s=0.5)
    page = demo.page
    page.click("#talk")
    page.wait_for_selector(".latency")
    page.click("#talk")
    page.click("#events")
    page.wait_for_selector("#drawer-list li")
    assert page.get_attribute("#events", "aria-expanded") == "true"
    assert rows(demo)[:3] == ["session.created", "session.update", "session.updated"]
    # Other events may come between the first packets, which are not collapsed then.
    packets = page.locator("#drawer-list li", has_text="input_audio_buffer.append")
    sound = packets.filter(has_text="\N{MULTIPLICATION SIGN}").first
    assert "KiB" in sound.locator(".count").inner_text()
    assert "sent" in sound.locator(".way").inner_text()
    sound.locator("summary").click()
    demo.until(lambda: " bytes)" in sound.locator("pre").inner_text())
    page.select_option("#drawer-direction", "received")
    page.fill("#drawer-filter", "latency.report")
    page.wait_for_function("() => document.querySelectorAll('#drawer-list li').length === 1")
    assert rows(demo) == ["gateway.latency.report"]
    with page.expect_download() as download:
        page.click("#drawer-save")
    saved = tmp_path / "events.json"
    download.value.save_as(saved)
    content = json.loads(saved.read_text())
    assert content["format"] == "headstart.events/1"
    assert {event["direction"] for event in content["events"]} == {"sent", "received"}
    assert max(len(json.dumps(event)) for event in content["events"]) < 4_000
    page.click("#drawer-close")
    page.wait_for_selector("#drawer", state="hidden")
    assert page.evaluate("() => document.activeElement.id") == "events"
    assert demo.complaints == []


def test_an_opened_event_stays_open(demo: OpenPage, mock: MockGateway) -> None:
    """New events come below it, while somebody reads."""
    mock.script = Script(start_s=1e9)
    page = demo.page
    page.click("#events")
    page.locator("#drawer-list summary").nth(1).click()
    page.click("#talk")
    page.wait_for_selector("#drawer-list .type:text('input_audio_buffer.append')")
    assert page.locator("#drawer-list details").nth(1).evaluate("node => node.open")
