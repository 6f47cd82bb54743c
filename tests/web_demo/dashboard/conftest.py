"""A feed under the tests' control, and the dashboard over it in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from headstart import web_assets
from tests.web_demo.conftest import OpenPage, PageOpener
from tests.web_demo.dashboard.fake_feed import FakeFeed


@pytest.fixture(scope="session")
def charts() -> None:
    """The chart library, fetched if need be. Raises AssetError, never skips."""
    web_assets.ensure()


@pytest.fixture(scope="session")
def feed_server(charts: None) -> Iterator[FakeFeed]:
    server = FakeFeed()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def feed(feed_server: FakeFeed) -> FakeFeed:
    """The server, as new."""
    feed_server.reset()
    return feed_server


DashboardOpener = Callable[..., OpenPage]


@pytest.fixture
def open_dashboard(browser: Browser, feed: FakeFeed, open_page: PageOpener) -> DashboardOpener:
    """Opens the dashboard at a hash, and waits until its feed is live."""

    def start(hash_: str = "", *, live: bool = True, **settings: Any) -> OpenPage:
        opened = open_page(browser, feed.url + hash_, **settings)
        if live:
            opened.page.wait_for_selector("body[data-feed=live]")
        return opened

    return start


@pytest.fixture
def dashboard(feed: FakeFeed, open_dashboard: DashboardOpener) -> OpenPage:
    """The dashboard after 150 seconds with 120 turns a minute."""
    opened = open_dashboard()
    feed.run(150, 120)
    newest = f"[data-newest='{feed.server.seq}']"
    opened.page.wait_for_selector(f"body{newest}")
    return opened
