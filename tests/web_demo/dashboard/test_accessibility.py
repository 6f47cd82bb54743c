"""The dashboard for everybody: axe finds nothing on any screen, and the keyboard reaches all of
it."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.web_demo.conftest import OpenPage
from tests.web_demo.dashboard.conftest import DashboardOpener
from tests.web_demo.dashboard.fake_feed import SCREENS, FakeFeed
from tests.web_demo.dashboard.feed_fixtures import Server, conversation, jsonl
from tests.web_demo.page_bench import findings


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(
    feed: FakeFeed,
    open_dashboard: DashboardOpener,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    """On each screen, filled, with a list of turns and a session open, and replaying a file."""
    opened = open_dashboard(
        color_scheme=scheme, viewport={"width": width, "height": 844}, reduced_motion="reduce"
    )
    page = opened.page
    found: dict[str, list[str]] = {}
    for second in range(90):
        feed.server.slow = 4.0 if second > 60 else 1.0  # tiles of all colours
        feed.run(1, 120)
    page.wait_for_selector(f"body[data-newest='{feed.server.seq}']")
    for screen in (*SCREENS, "compare"):
        page.goto(f"{feed.url}#screen={screen}")
        page.wait_for_selector(f"#{screen}")
        if screen == "sessions":
            page.locator("table.sessions button.link").first.click()
            page.wait_for_selector("#sessions .card table")
        if screen == "percentiles":
            page.locator("button.figure").first.click()
            page.get_by_role("button", name="Rank the changes").click()
        if screen == "engine":
            page.locator("#engine summary").first.click()
        page.wait_for_timeout(150)
        found[screen] = findings(page)
    assert {screen: what for screen, what in found.items() if what} == {}
    recording = jsonl(conversation(Server(3, run="run_3"), 20))
    page.set_input_files(
        "#tools input[type=file]",
        {"name": "run.jsonl", "mimeType": "application/json", "buffer": recording},
    )
    page.wait_for_selector("#replay input[type=range]:enabled")
    assert findings(page) == []
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Open in Perfetto…").click()
    assert findings(page) == []
    assert opened.complaints == []


def test_axe_is_at_work(dashboard: OpenPage) -> None:
    """A fault put into the page is found."""
    page = dashboard.page
    page.evaluate(
        "document.querySelector('#nav select').closest('label').replaceWith("
        "document.querySelector('#nav select'))"
    )
    assert any(found.startswith("select-name") for found in findings(page))


def test_the_keyboard_reaches_everything(dashboard: OpenPage) -> None:
    """Tab goes from the skip link through tools, tiles, screens and window to the screen's own
    parts, and what has the focus can be seen."""
    page = dashboard.page
    reached: list[str] = []
    unseen: list[str] = []
    for _ in range(45):
        page.keyboard.press("Tab")
        what, visible = page.evaluate(
            """() => {
              const node = document.activeElement;
              const { width, height } = node.getBoundingClientRect();
              const style = getComputedStyle(node);
              return [node.innerText?.split('\\n')[0] || node.ariaLabel || node.tagName,
                      width > 0 && height > 0 && style.outlineStyle !== 'none'];
            }"""
        )
        reached.append(what)
        if not visible:
            unseen.append(what)
    assert reached[0] == "Skip to the screen"
    wanted = [
        "Open recording",
        "Save feed",
        "Export",
        "Sessions",
        "Percentiles",
        "Compare",
        "Age",
        "Pin",
    ]
    places = [reached.index(what) for what in wanted]
    assert places == sorted(places)
    assert unseen == []


def test_the_skip_link_skips(dashboard: OpenPage) -> None:
    """It moves the focus to the screen, and leaves the screen as it is."""
    page = dashboard.page
    page.goto(page.url.split("#")[0] + "#screen=errors")
    page.wait_for_selector("#errors")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("main:focus")
    page.wait_for_timeout(100)
    assert page.locator("#errors").count() == 1


def test_the_focus_survives_new_data(dashboard: OpenPage, feed: FakeFeed) -> None:
    """A second later the page has new numbers, and who was on a button still is."""
    page = dashboard.page
    for screen, selector in (
        ("sessions", "button.pin"),
        ("percentiles", "button.figure"),
        ("turn", "#turn table.turns a"),
    ):
        page.goto(f"{page.url.split('#')[0]}#screen={screen}")
        page.locator(selector).nth(1).focus()
        for _ in range(3):
            feed.run(1, 0)
            page.wait_for_timeout(700)
        assert page.evaluate("document.activeElement.tagName") != "BODY", screen
        assert page.locator(f"{selector}:focus").count() == 1
