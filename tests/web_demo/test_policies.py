"""The page under the policies that the server sends with it, and with an ephemeral secret."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web_demo.conftest import PageOpener
from tests.web_demo.test_key import KEY, LOAD_TIMEOUT_MS, url

__all__ = ["url"]  # a fixture

INLINE = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.head.append(script);
  return window.ran ?? false;
}"""
# Resolves with what the browser's policy forbade, or with what came of the request.
FETCH_ELSEWHERE = """() => new Promise((resolve) => {
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective: directive }) => {
    if (directive === "connect-src") resolve(directive);
  });
  fetch("http://127.0.0.1:9/").then(
    () => resolve("sent"),
    (error) => setTimeout(() => resolve(error.message), 1_000),
  );
})"""


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
@pytest.mark.parametrize("with_secret", [False, True])
def test_nothing_the_page_does_is_forbidden(
    url: str,
    browser: Browser,
    open_page: PageOpener,
    transport: str,
    with_secret: bool,
) -> None:
    """Microphone, worklets, socket or call, camera and answers, without a word on the console but
    that it needed a key; with a key, or with a secret, which may read no status."""
    key = KEY
    if with_secret:
        made = httpx.post(
            f"{url}/v1/realtime/client_secrets", headers={"Authorization": f"Bearer {KEY}"}
        )
        key = made.json()["value"]
    query = "?transport=websocket" if transport == "websocket" else ""
    demo = open_page(browser, f"{url}/{query}")
    page = demo.page
    page.fill("#key", key)
    page.press("#key", "Enter")
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    page.click("#talk")
    page.wait_for_selector("body[data-phase=listening], body[data-phase=speaking]")
    page.check("#camera")
    expect(page.locator("#preview")).to_be_visible(timeout=LOAD_TIMEOUT_MS)
    page.fill("#text", "Hello.")
    page.press("#text", "Enter")
    expect(page.locator(".entry.assistant .words").last).not_to_be_empty(timeout=LOAD_TIMEOUT_MS)
    # Chromium itself tells of each answer that is no success: of asking without a key.
    unasked = [text for text in demo.complaints if "401" not in text and "403" not in text]
    assert unasked == []


def test_what_is_not_the_servers_does_not_run(
    url: str,
    browser: Browser,
    open_page: PageOpener,
) -> None:
    """A script that somebody got into the page, and an address elsewhere, are refused by the
    browser."""
    page = open_page(browser, url).page
    assert page.evaluate(INLINE) is False
    assert page.evaluate(FETCH_ELSEWHERE) == "connect-src"
    blocked = page.evaluate(
        """() => new Promise((resolve) => {
          document.addEventListener("securitypolicyviolation", (e) => resolve(e.violatedDirective));
          fetch("http://127.0.0.1:9/").catch(() => {});
        })"""
    )
    assert blocked == "connect-src"
