"""The way to the server: while its engine loads, when it goes away, and when it comes back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.web_demo.conftest import ON_FIREFOX, OpenPage, PageOpener
from tests.web_demo.mock_gateway import MockGateway, Script


@pytest.mark.parametrize(
    ("llm_server", "said"),
    [(None, "what you say and show goes nowhere else"), ({"prompts": "token ids"}, "LLM server")],
)
def test_the_page_says_who_gets_what_is_said(
    browser: Browser,
    mock: MockGateway,
    open_page: PageOpener,
    llm_server: dict[str, str] | None,
    said: str,
) -> None:
    """The server of this page alone, or an LLM server too."""
    mock.model = {"name": "mock", "llm_server": llm_server}
    demo = open_page(browser, mock.url)
    demo.phase("idle")
    assert said in demo.text("#model-note")
    assert ("nowhere else" in demo.text("#model-note")) is (llm_server is None)


@pytest.mark.parametrize(
    ("waited_ms", "said"), [(5_000, "is starting"), (120_000, "No engine has connected yet")]
)
def test_an_engine_that_never_comes_is_not_starting_for_ever(
    demo: OpenPage, waited_ms: int, said: str
) -> None:
    """As where only half of a server is running."""
    words = "async (ms) => (await import('/connection.js')).whatLoads({ state: 'waiting' }, ms)"
    assert said in demo.page.evaluate(words, waited_ms)


def test_while_the_engine_loads_the_page_says_what(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """What is loading and how far; Talk waits; ready follows by itself."""
    mock.engine = {
        "state": "loading",
        "reason": "it is loading",
        "loading": {"what": "weights", "done": 250, "total": 1000},
    }
    demo = open_page(browser, mock.url)
    demo.phase("loading")
    assert demo.text("#notice-text") == "Loading: weights"
    assert demo.text("#notice-share") == "25 %"
    assert demo.page.get_by_role("progressbar", name="Loaded").get_attribute("value") == "0.25"
    assert demo.page.locator("#talk").is_disabled()
    mock.engine = {
        "state": "loading",
        "reason": "",
        "loading": {"what": "ears", "done": 1, "total": 0},
    }
    demo.page.wait_for_selector("#notice-text:text-is('Loading: ears')")
    assert demo.page.get_by_role("progressbar").count() == 0
    assert mock.received.models == []
    mock.engine = {"state": "ready", "reason": "", "loading": None}
    demo.phase("idle")
    assert demo.page.locator("#notice").is_hidden()


def test_an_engine_that_is_not_there_says_why(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """The reason in `/status` is shown while there is no engine."""
    mock.engine = {"state": "lost", "reason": "it was killed", "loading": None}
    demo = open_page(browser, mock.url)
    demo.phase("loading")
    assert demo.text("#notice-text") == "The engine is not ready: it was killed."


def test_a_lost_connection_comes_back(demo: OpenPage, mock: MockGateway) -> None:
    """The loss is said, the microphone closes, and a new session begins below what was said."""
    demo.page.click("#talk")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    mock.script = Script(hangs_up=True)
    demo.page.fill("#text", "bye")
    demo.page.press("#text", "Enter")
    demo.phase("lost")
    assert demo.text("#notice-text") == (
        "The connection to the server was lost. Trying again in 1 s."
    )
    assert demo.text("#talk-label") == "Talk"
    mock.script = Script()
    demo.phase("idle")
    assert len(mock.received.models) == 2
    assert "has forgotten what is above" in demo.text(".entry.break")


def test_where_no_call_gets_through_a_websocket_does(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """A server that says it takes calls, and takes none: the page talks over a WebSocket, and does
    not call again after a loss."""
    mock.webrtc = True
    demo = open_page(browser, mock.url)
    demo.phase("idle")
    assert len(mock.received.models) == 1
    if not ON_FIREFOX:  # its console does not name a refused request
        assert [c for c in demo.complaints if "calls" in c or "Failed to load" in c]
    tried = len(demo.complaints)
    mock.script = Script(hangs_up=True)
    demo.page.fill("#text", "bye")
    demo.page.press("#text", "Enter")
    demo.phase("lost")
    mock.script = Script()
    demo.phase("idle")
    assert len(mock.received.models) == 2
    assert len(demo.complaints) == tried


def test_a_server_that_is_gone_can_be_tried_again(
    browser: Browser, own_server: MockGateway, open_page: PageOpener
) -> None:
    """Waits grow longer, and the button tries at once."""
    demo = open_page(browser, own_server.url)
    demo.phase("idle")
    own_server.stop()
    demo.phase("lost")
    gone = "The server does not answer: is it running? Trying again in"
    demo.page.wait_for_selector(f"#notice-text:text-is('{gone} 2 s.')")
    demo.page.click("#retry")
    demo.page.wait_for_selector(f"#notice-text:text-is('{gone} 4 s.')")
    assert demo.page.locator("#talk").is_disabled()
