"""The page of a server that wants keys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Dialog, expect

from tests.web_demo.conftest import PageOpener
from tests.web_demo.test_real_server import drain, first_url

KEY = "k" * 20
LOAD_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a key and a scripted engine."""
    command = [sys.executable, "-m", "gateway", "serve", "--engine", "fake", "--port", "0"]
    command += ["--set", f"api_keys={KEY}", "--set", "voice=none", "--announce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield first_url(server.stdout)
        threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
        os.kill(server.pid, signal.SIGTERM)
        server.wait(20)


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_the_page_asks_for_a_key(
    url: str, browser: Browser, open_page: PageOpener, transport: str
) -> None:
    """Once, and again as it was wrong; with the right one it talks, and keeps it for the tab."""
    demo = open_page(browser, f"{url}/icon.svg")
    page, given = demo.page, iter(["wrong", KEY])
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept(next(given))

    page.on("dialog", answer)
    there = f"{url}/{'?transport=websocket' if transport == 'websocket' else ''}"
    page.goto(there)
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    assert asked == ["This server needs an API key."] * 2
    page.fill("#text", "Hello.")
    page.press("#text", "Enter")
    expect(page.locator(".entry.assistant .words").last).not_to_be_empty(timeout=LOAD_TIMEOUT_MS)
    page.goto(there)
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    assert len(asked) == 2


def test_without_a_key_the_page_says_what_is_missing(
    url: str, browser: Browser, open_page: PageOpener
) -> None:
    """And asks no second time by itself."""
    demo = open_page(browser, f"{url}/icon.svg")
    page = demo.page
    asked: list[str] = []

    def decline(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", decline)
    page.goto(url)
    page.wait_for_selector("body[data-phase=lost]", timeout=LOAD_TIMEOUT_MS)
    page.wait_for_timeout(2_500)
    assert "Reload the page to give one." in demo.text("#notice-text")
    assert len(asked) == 1
