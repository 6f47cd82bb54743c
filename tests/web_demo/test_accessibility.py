"""The talk page for everybody: axe finds nothing in any state, on a phone and in the dark too."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.web_demo.conftest import OpenPage, PageOpener
from tests.web_demo.mock_gateway import MockGateway, Script
from tests.web_demo.page_bench import FAILS, findings


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(
    browser: Browser,
    mock: MockGateway,
    open_page: PageOpener,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    """Welcome, a turn with captions, camera and events, muted, held, both dialogs, an error; and
    nothing of it is wider than the page."""
    demo = open_page(
        browser,
        mock.url,
        color_scheme=scheme,
        viewport={"width": width, "height": 844},
        reduced_motion="reduce",
    )
    page = demo.page
    demo.phase("idle")
    found: dict[str, list[str]] = {}
    wide: dict[str, int] = {}

    def look(state: str) -> None:
        page.wait_for_timeout(150)
        found[state] = findings(page)
        wide[state] = page.evaluate("document.documentElement.scrollWidth")

    look("welcome")
    mock.script = Script(sound_s=0.3)
    page.check("#captions-on")
    page.check("#camera")
    page.wait_for_selector("#seen-list li")
    page.click("#talk")
    page.wait_for_selector(".latency:has-text('heard')")
    look("turn")
    page.click("#mute")
    look("muted")
    page.click("#events")
    page.locator("#drawer-list summary").nth(1).click()
    look("events")
    page.click("#drawer-close")
    page.check("#hold")
    look("hold")
    page.click("#help")
    look("keys")
    page.keyboard.press("Escape")
    page.click("#devices")
    page.wait_for_selector("#echo:enabled")
    page.click("#try-camera")
    page.wait_for_selector("#check-video:not([hidden])")
    look("devices")
    page.click("#check-skip")
    page.uncheck("#hold")
    page.evaluate(FAILS, "NotAllowedError")
    page.click("#talk")
    page.wait_for_selector("#notice:not([hidden])")
    look("error")
    assert {state: what for state, what in found.items() if what} == {}
    assert {state: px for state, px in wide.items() if px > width} == {}
    assert demo.complaints == []


def test_a_phone_is_told_of_no_keyboard(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """Neither Escape nor the shortcuts, without a keyboard; on a desktop both."""
    for touch in (True, False):
        page = open_page(browser, mock.url, has_touch=touch, is_mobile=touch).page
        page.wait_for_selector("body[data-phase=idle]")
        for told in (page.get_by_text("press Escape"), page.locator("#help")):
            assert told.is_visible() is not touch


def test_loading_is_shown_to_everybody(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """axe finds nothing while a bar grows; its number is in no live region, which would read it out
    at each change."""
    mock.engine = {
        "state": "loading",
        "reason": "",
        "loading": {"what": "weights", "done": 1, "total": 4},
    }
    demo = open_page(browser, mock.url)
    demo.phase("loading")
    assert findings(demo.page) == []
    assert demo.page.locator("#notice-share").get_attribute("aria-hidden") == "true"
    assert demo.text("#notice-text") == "Loading: weights"


def test_the_dashboard_is_one_link_away(demo: OpenPage) -> None:
    """And back."""
    page = demo.page
    page.get_by_role("link", name="Dashboard").click()
    page.wait_for_url("**/dashboard/")
    page.get_by_role("link", name="The talk page").click()
    demo.phase("idle")
