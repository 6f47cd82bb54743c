"""Captions, the latency chip with the playout that the page reports, and what the model sees."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web_demo.conftest import OpenPage, chromium_alone
from tests.web_demo.mock_gateway import STAGES_MS, MockGateway, Script

NEVER_S = 1e9
CHIP = """async ([report, playout, setting]) =>
  (await import("./chip.js")).chipText(report, playout, setting)"""
Json = dict[str, Any]


def ask(demo: OpenPage) -> None:
    demo.page.fill("#text", "What is the capital of France?")
    demo.page.press("#text", "Enter")


def size_px(page: Page) -> float:
    size: str = page.locator(".captions-text").evaluate("node => getComputedStyle(node).fontSize")
    return float(size.removesuffix("px"))


def test_captions_show_what_is_being_said(demo: OpenPage, mock: MockGateway) -> None:
    """Large; the words that may still change in italics."""
    mock.script = Script(hearings=mock.script.hearings[:-1], stop_s=NEVER_S)
    page = demo.page
    page.check("#captions-on")
    page.click("#talk")
    tentative = page.locator("#captions-tentative")
    expect(tentative).to_have_text(" friends")
    expect(page.locator("#captions-words")).to_have_text("What is the capital of")
    expect(page.locator("#captions-who")).to_have_text("You")
    assert tentative.evaluate("node => getComputedStyle(node).fontStyle") == "italic"
    log = page.locator(".entry.user .tentative")
    assert log.evaluate("node => getComputedStyle(node).fontStyle") == "italic"


def test_captions_have_a_size_that_lasts(demo: OpenPage) -> None:
    """Larger and smaller to the ends, kept over a reload, as is that they are shown."""
    page = demo.page
    page.check("#captions-on")
    usual = size_px(page)
    while page.locator("#captions-larger").is_enabled():
        page.click("#captions-larger")
    largest = size_px(page)
    page.reload()
    demo.phase("idle")
    assert page.is_checked("#captions-on")
    assert size_px(page) == largest
    while page.locator("#captions-smaller").is_enabled():
        page.click("#captions-smaller")
    assert size_px(page) < usual < largest


@chromium_alone("Firefox takes no reduced motion from Playwright")
def test_nothing_moves_for_who_wants_it_still(demo: OpenPage, mock: MockGateway) -> None:
    """`prefers-reduced-motion`: no blinking, no glow that follows the voice."""
    mock.script = Script(holds_answer=True)
    page = demo.page
    page.emulate_media(reduced_motion="reduce")
    ask(demo)
    demo.phase("answering")
    moving = page.evaluate(
        """() => document.getAnimations().map((a) => a.animationName ?? a.transitionProperty)"""
    )
    assert moving == []
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("() => document.getAnimations().length > 0")


@pytest.mark.parametrize(
    ("voice_ms", "playout", "total_ms", "wait_ms", "said"),
    [
        (
            650.0,
            {"ms": 40.0, "about": False},
            562.0,
            499.0,
            "heard after 690 ms · 499 ms waiting (s)",
        ),
        (650.0, {"ms": 40.0, "about": True}, 562.0, None, "heard after about 690 ms"),
        (650.0, None, 562.0, 499.0, "spoken after 650 ms · 499 ms waiting (s)"),
        (None, None, 562.0, 499.0, "first word after 562 ms · 499 ms waiting (s)"),
        (None, None, 63.0, None, "first word after 63 ms"),
        (None, {"ms": 40.0, "about": False}, None, None, ""),
    ],
)
def test_the_chip_says_what_was_measured(
    workbench: Page,
    voice_ms: float | None,
    playout: Json | None,
    total_ms: float | None,
    wait_ms: float | None,
    said: str,
) -> None:
    """From capture to ear where all of it is known, and no number where it is not."""
    voice = None if voice_ms is None else {"total_ms": voice_ms}
    budget = {"total_ms": total_ms, "stages_ms": {"vad_hangover": wait_ms}}
    assert workbench.evaluate(CHIP, [{"budget": budget, "voice": voice}, playout, "s"]) == said


def test_a_spoken_answer_has_a_chip_to_its_turn(demo: OpenPage, mock: MockGateway) -> None:
    """What was heard is later than what was sent by the playout that the page reports; the chip
    links to the turn's waterfall, in a tab of its own."""
    mock.script = Script(sound_s=0.6)
    demo.page.click("#talk")
    chip = demo.page.locator(".latency", has_text="heard after")
    chip.wait_for()
    demo.until(lambda: bool(mock.received.of_type("gateway.playout.started")))
    (told,) = mock.received.of_type("gateway.playout.started")
    (report,) = demo.page.evaluate(
        "() => [...document.querySelectorAll('.latency')].map((a) => a.getAttribute('href'))"
    )
    assert report == f"dashboard/#turn={told['response_id']}"
    assert chip.get_attribute("target") == "_blank"
    assert 0 <= told["delay_ms"] < 10_000
    sent_ms = sum(ms for ms in STAGES_MS.values() if ms) + 60.0
    words = chip.inner_text()
    heard = words.split(" · ")[0].removeprefix("heard after ").removeprefix("about ")
    number, unit = heard.split()
    heard_ms = float(number) * (1000 if unit == "s" else 1)
    assert heard_ms == pytest.approx(sent_ms + told["delay_ms"], abs=6)
    assert words.endswith("· 500 ms waiting (endpointing)")
    assert demo.complaints == []


def test_playout_is_told_once_an_answer(demo: OpenPage, mock: MockGateway) -> None:
    """Each answer's first sample, and no other; an answer that is cut before is not told."""
    mock.script = Script(sound_s=0.3)

    def told(number: int) -> bool:
        return len(mock.received.of_type("gateway.playout.started")) == number

    for number in (1, 2):
        ask(demo)
        demo.until(partial(told, number))
        demo.page.wait_for_selector("body[data-sound=quiet]")
        demo.phase("idle")
    ids = [event["response_id"] for event in mock.received.of_type("gateway.playout.started")]
    assert len(set(ids)) == 2


def test_an_older_server_may_refuse_the_report(demo: OpenPage, mock: MockGateway) -> None:
    """Nobody is told of the refusal, and it is not sent again."""
    mock.script = Script(sound_s=0.3, knows_playout=False)
    for number in (1, 2):
        ask(demo)
        heard = demo.page.locator(".latency", has_text="heard after")
        expect(heard).to_have_count(number)
        demo.page.wait_for_selector("body[data-sound=quiet]")
    assert len(mock.received.of_type("gateway.playout.started")) == 1
    assert demo.page.locator("#notice").is_hidden()
    assert demo.complaints == []


def test_what_the_model_sees(demo: OpenPage, mock: MockGateway) -> None:
    """The pictures that were kept, newest first, with why; of the others how many and why not."""
    page = demo.page
    page.check("#camera")
    rows = page.locator("#seen-list li")
    expect(rows).to_have_count(2, timeout=30_000)
    assert rows.nth(0).inner_text() == "17 % different, 1.0 s later"
    assert rows.nth(1).inner_text() == "the first picture"
    assert "looked like the one before" in demo.text("#seen-words")
    sizes = page.locator("#seen-list img").evaluate_all("nodes => nodes.map((n) => n.naturalWidth)")
    assert sizes == [512, 512]
    ids = [message["event_id"] for message in mock.received.of_type("input_image_buffer.append")]
    assert len(set(ids)) == len(ids)
    assert demo.complaints == []
