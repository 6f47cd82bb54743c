"""Pictures of the page in its states, light and dark, wide and narrow, for people to look at.

python -m tests.web_demo.screenshots FOLDER [STATE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

from tests.web_demo import chromium
from tests.web_demo.mock_gateway import MockGateway, Script

SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NEVER_S = 1e9
TIMEOUT_MS = 20_000

Shot = Callable[[MockGateway, Page], None]


def in_phase(page: Page, phase: str) -> None:
    page.wait_for_selector(f"body[data-phase={phase}]", timeout=TIMEOUT_MS)


def welcome(_: MockGateway, page: Page) -> None:
    in_phase(page, "idle")


def loading(mock: MockGateway, page: Page) -> None:
    progress = {"what": "weights of qwen2.5-coder-0.5b", "done": 231, "total": 491}
    mock.engine = {"state": "loading", "reason": "", "loading": progress}
    page.reload()
    in_phase(page, "loading")


def speaking(mock: MockGateway, page: Page) -> None:
    said = mock.script.hearings[:-1]
    mock.script = replace(mock.script, hearings=said, stop_s=NEVER_S)
    turn(mock, page, start="speaking")
    page.wait_for_selector(".tentative:text-is(' friends')", timeout=TIMEOUT_MS)


def turn(mock: MockGateway, page: Page, start: str = "listening") -> None:
    """A typed question, a follow-up out loud, and its answer."""
    page.reload()
    in_phase(page, "idle")
    page.fill("#text", "Is it going to rain tomorrow?")
    page.press("#text", "Enter")
    in_phase(page, "idle")
    page.click("#talk")
    if start == "listening":
        page.wait_for_selector(".entry.assistant >> nth=1", timeout=TIMEOUT_MS)
    in_phase(page, start)


def over_budget(mock: MockGateway, page: Page) -> None:
    mock.stages_ms = mock.stages_ms | {"encode": 180.0, "prefill": 240.0}
    turn(mock, page)


def lost(mock: MockGateway, page: Page) -> None:
    turn(mock, page)
    mock.script = replace(mock.script, hangs_up=True)
    page.fill("#text", "bye")
    page.press("#text", "Enter")
    in_phase(page, "lost")


def talking(mock: MockGateway, page: Page) -> None:
    """Answered aloud, with its chip, captions and what the camera has shown."""
    mock.script = replace(mock.script, sound_s=1.0)
    page.check("#captions-on")
    page.check("#camera")
    page.wait_for_selector("#seen-list li >> nth=1", timeout=TIMEOUT_MS)
    page.click("#talk")
    page.wait_for_selector(".latency:has-text('heard after')", timeout=TIMEOUT_MS)
    in_phase(page, "listening")


def held(mock: MockGateway, page: Page) -> None:
    turn(mock, page)
    page.click("#talk")
    page.check("#hold")
    page.locator("#talk").focus()
    page.keyboard.down(" ")
    in_phase(page, "speaking")


def muted(mock: MockGateway, page: Page) -> None:
    turn(mock, page)
    page.click("#mute")
    in_phase(page, "muted")


def devices(_: MockGateway, page: Page) -> None:
    in_phase(page, "idle")
    page.click("#devices")
    page.click("#try-camera")
    page.wait_for_selector("#check-video:not([hidden])", timeout=TIMEOUT_MS)
    page.wait_for_function("() => Number(document.getElementById('meter').ariaValueNow) > 40")


def events(mock: MockGateway, page: Page) -> None:
    turn(mock, page)
    page.click("#events")
    page.locator("#drawer-list li summary").nth(2).click()
    page.wait_for_timeout(400)


def keys(_: MockGateway, page: Page) -> None:
    in_phase(page, "idle")
    page.click("#help")


def refused(_: MockGateway, page: Page) -> None:
    in_phase(page, "idle")
    page.evaluate(
        """() => { navigator.mediaDevices.getUserMedia = async () => {
          throw new DOMException("Permission denied", "NotAllowedError"); }; }"""
    )
    page.click("#talk")
    page.wait_for_selector("#notice:not([hidden])", timeout=TIMEOUT_MS)


STATES: tuple[Shot, ...] = (
    welcome,
    loading,
    speaking,
    turn,
    talking,
    held,
    muted,
    devices,
    events,
    keys,
    refused,
    over_budget,
    lost,
)


def shoot(browser: Browser, mock: MockGateway, folder: Path, name: str, shot: Shot) -> None:
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            mock.reset()
            mock.script = Script()
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(mock.url)
            shot(mock, page)
            page.wait_for_timeout(150)  # the frame that draws it
            path = folder / f"{name}-{size}-{scheme}.png"
            page.screenshot(path=path, full_page=size == "narrow")
            print(path)
            context.close()


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mock = MockGateway()
    mock.start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium.ensure(), args=[*chromium.ARGS, *chromium.FAKE_DEVICES]
        )
        for shot in (s for s in STATES if not wanted or s.__name__ in wanted):
            shoot(browser, mock, folder, shot.__name__, shot)
        browser.close()
    mock.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
