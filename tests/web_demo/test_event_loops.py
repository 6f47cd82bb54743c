"""Tests of the page and asynchronous tests of one process, in any order."""

from __future__ import annotations

import asyncio

from playwright.sync_api import Page


def test_a_page_is_open(workbench: Page) -> None:
    """Playwright's loop runs in this thread from here on."""
    assert workbench.evaluate("1 + 1") == 2


async def test_an_asynchronous_test_behind_it_has_a_loop_of_its_own() -> None:
    """Else it would be told that one is running already."""
    assert asyncio.get_running_loop().is_running()
    await asyncio.sleep(0)


def test_a_synchronous_one_may_start_a_loop_too() -> None:
    """As commands do."""
    asyncio.run(asyncio.sleep(0))


def test_the_page_still_answers(workbench: Page) -> None:
    """Its driver has not noticed."""
    assert workbench.evaluate("Promise.resolve(3)") == 3
