"""On a phone, 390 px wide and touched by fingers: nothing is cut off or too small to hit."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.web_demo.conftest import ON_FIREFOX
from tests.web_demo.dashboard.fake_feed import FakeFeed
from tests.web_demo.mock_gateway import MockGateway

FINGER_PX = 40
WIDER = "document.documentElement.scrollWidth > innerWidth"
SMALL = """([selector, least]) => [...document.querySelectorAll(selector)]
  .filter((each) => each.offsetParent && each.getBoundingClientRect().height < least)
  .map((each) => each.outerHTML.slice(0, 80))"""

pytestmark = pytest.mark.skipif(ON_FIREFOX, reason="Playwright's Firefox has no phones")


def phone(browser: Browser, url: str) -> Page:
    """A page as a phone shows it."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    page = context.new_page()
    page.goto(url)
    return page


def test_the_talk_page_is_for_fingers(browser: Browser, mock: MockGateway) -> None:
    """Its controls are high enough, and it does not scroll sideways."""
    page = phone(browser, mock.url)
    page.wait_for_selector("body[data-phase=idle]")
    controls = "header a, .options label, .options button, #talk, #first-check"
    assert page.evaluate(SMALL, [controls, FINGER_PX]) == []
    assert not page.evaluate(WIDER)
    page.context.close()


def test_the_dashboard_is_for_fingers(browser: Browser, feed: FakeFeed) -> None:
    """Its buttons and tiles too; each tile says what its number is."""
    page = phone(browser, feed.url)
    page.wait_for_selector("body[data-feed=live]")
    page.wait_for_selector(".tile")
    controls = ".home, #tools > button, #strip a, #nav a, select"
    assert page.evaluate(SMALL, [controls, FINGER_PX]) == []
    assert not page.evaluate(WIDER)
    told = page.eval_on_selector_all("#strip a", "all => all.map((each) => each.title)")
    assert len(told) == 8
    assert all(told)
    page.context.close()
