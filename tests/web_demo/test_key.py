"""The page of a server that wants keys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.web_demo.conftest import PageOpener
from tests.web_demo.test_real_server import drain, first_url

KEY = "k" * 20
LOAD_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a key and a scripted engine."""
    command = [sys.executable, "-m", "headstart", "serve", "--engine", "fake", "--port", "0"]
    command += ["--set", f"api_keys={KEY}", "--set", "voice=none", "--announce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield first_url(server.stdout)
        threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
        os.kill(server.pid, signal.SIGTERM)
        server.wait(60)


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_the_page_asks_for_a_key(
    url: str, browser: Browser, open_page: PageOpener, transport: str
) -> None:
    """Until it has the right one; then it talks, and keeps the key for the tab."""
    there = f"{url}/{'?transport=websocket' if transport == 'websocket' else ''}"
    page = open_page(browser, there).page
    label = page.locator("#key-label")
    for given, asked in [
        ("wrong", "This server needs an API key."),
        (f" {KEY} ", "The server does not know that key."),
    ]:
        expect(label).to_have_text(asked, timeout=LOAD_TIMEOUT_MS)
        expect(page.locator("#phase")).to_have_text("Key needed")
        assert page.locator("#talk").is_disabled()
        expect(page.locator("#key")).to_be_focused()
        page.fill("#key", given)
        page.press("#key", "Enter")
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    expect(label).to_be_hidden()
    page.fill("#text", "Hello.")
    page.press("#text", "Enter")
    expect(page.locator(".entry.assistant .words").last).not_to_be_empty(timeout=LOAD_TIMEOUT_MS)
    page.goto(there)
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    expect(label).to_be_hidden()


def test_the_page_of_a_server_without_a_voice_says_so(
    url: str, browser: Browser, open_page: PageOpener
) -> None:
    """In place of a box that does nothing when it is ticked; and it names the model."""
    page = open_page(browser, url).page
    page.fill("#key", KEY)
    page.press("#key", "Enter")
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    expect(page.locator("#voice")).to_be_disabled()
    expect(page.locator("#voice-note")).to_have_text("(this server has no voice)")
    expect(page.locator("#model")).not_to_be_empty()
