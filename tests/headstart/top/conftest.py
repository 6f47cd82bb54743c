from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web_demo.dashboard.fake_feed import FakeFeed


@pytest.fixture(scope="package")
def only_feed() -> Iterator[FakeFeed]:
    made = FakeFeed()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def feed(only_feed: FakeFeed) -> FakeFeed:
    """A server of the dashboard's feed that has just started."""
    only_feed.reset()
    return only_feed
