"""The page when its connection breaks in mid-conversation: it comes back to the same one.

Against the real gateway with a scripted engine, through a wire that a test can cut.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web_demo.conftest import PageOpener
from tests.web_demo.mock_gateway import MockGateway
from tests.web_demo.test_real_server import drain, first_url
from tests.web_demo.test_session import CREATED, ITEM, OPENED, delta

LOAD_TIMEOUT_MS = 60_000
ANSWER = "one two three four five six seven eight nine ten"
SHOWN = ".entry.assistant .words"

KEEP_CALLS = """
window.calls = [];
const create = RTCPeerConnection.prototype.createDataChannel;
RTCPeerConnection.prototype.createDataChannel = function (...given) {
  const channel = create.apply(this, given);
  window.calls.push({ peer: this, channel });
  return channel;
};
"""
BREAK_CALL = """() => {
  const { peer, channel } = window.calls.at(-1);
  peer.close();
  channel.onclose?.();
}"""


WATCH_CALL = """() => {
  const { peer } = window.calls.at(-1);
  window.states = [];
  peer.addEventListener("connectionstatechange", () => window.states.push(peer.connectionState));
}"""
NOTE_NOTICES = """() => {
  window.notices = [];
  const text = document.getElementById("notice-text");
  const note = () => window.notices.push(text.textContent);
  new MutationObserver(note).observe(text, { childList: true, characterData: true, subtree: true });
}"""


class Wire:
    """A TCP relay in front of a server; `cut` breaks every connection through it at once."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._relay, args=(one, other), daemon=True).start()

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(port: int = 0) -> Iterator[tuple[int, int]]:
    """A server whose engine says ten words in two seconds, to everything: its port and process.
    It may be killed meanwhile."""
    script = f"--delta-ms 200 --answer '{ANSWER}'"
    command = [sys.executable, "-m", "headstart", "serve", "--engine", "fake", "--port", str(port)]
    command += ["--set", f"engine_args={script}", "--set", "voice=none", "--announce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(first_url(server.stdout).rsplit(":", 1)[1].strip("/"))
        threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
        try:
            yield port, server.pid
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGCONT)
                server.terminate()
            server.wait(60)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with serving() as (port, _):
        relay = Wire(port)
        yield relay
        relay.close()


def counted(url: str, sample: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(sample + " "))


def ask(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_an_answer_survives_the_loss_of_the_connection(
    wire: Wire, browser: Browser, open_page: PageOpener, transport: str
) -> None:
    """Cut in mid-answer: the page says so, comes back by itself, and shows the whole answer in the
    same conversation, which goes on; the server has made one session."""
    sessions = counted(wire.url, "headstart_sessions_total")
    resumed = 'headstart_resumes_total{outcome="resumed"}'
    before = counted(wire.url, resumed)
    demo = open_page(browser, f"{wire.url}/status")
    page = demo.page
    page.add_init_script(KEEP_CALLS)
    page.goto(f"{wire.url}/{'?transport=websocket' if transport == 'websocket' else ''}")
    page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
    ask(page, "Remember the word pear.")
    expect(page.locator(SHOWN).last).to_contain_text("three", timeout=LOAD_TIMEOUT_MS)
    if transport == "webrtc":
        page.evaluate(BREAK_CALL)
    wire.cut()  # a call that did not come through in time has fallen back to a socket
    page.wait_for_selector("body[data-phase=lost]")
    assert "Coming back to it." in demo.text("#notice-text")
    expect(page.locator(SHOWN).last).to_have_text(ANSWER, timeout=LOAD_TIMEOUT_MS)
    page.wait_for_selector("body[data-phase=idle]")
    ask(page, "What did I just say?")
    expect(page.locator(SHOWN)).to_have_count(2)
    expect(page.locator(SHOWN).last).to_have_text(ANSWER, timeout=LOAD_TIMEOUT_MS)
    assert page.locator(".entry.break").count() == 0
    assert page.locator(".entry.user").count() == 2
    assert counted(wire.url, "headstart_sessions_total") == sessions + 1
    assert counted(wire.url, resumed) == before + 1


@pytest.mark.timeout(180)
def test_a_call_without_an_answer_is_given_up_before_the_browser_does(
    browser: Browser, open_page: PageOpener
) -> None:
    """Nothing comes from the server any more, and nobody says why: once the browser says that the
    call is disconnected the page says that it is lost, and does not wait until the call has failed.
    When the server answers again, the conversation goes on where it was."""
    with serving() as (port, process):
        demo = open_page(browser, f"http://127.0.0.1:{port}/status")
        page = demo.page
        page.add_init_script(KEEP_CALLS)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
        page.evaluate(WATCH_CALL)
        ask(page, "Remember the word pear.")
        expect(page.locator(SHOWN).last).to_contain_text("two", timeout=LOAD_TIMEOUT_MS)
        os.kill(process, signal.SIGSTOP)
        page.wait_for_selector("body[data-phase=lost]")
        assert "Coming back to it." in demo.text("#notice-text")
        assert page.evaluate("window.states") == ["disconnected"]
        os.kill(process, signal.SIGCONT)
        expect(page.locator(SHOWN).last).to_have_text(ANSWER, timeout=LOAD_TIMEOUT_MS)
        page.wait_for_selector("body[data-phase=idle]")
        assert page.locator(".entry.break").count() == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
def test_a_server_that_was_killed_has_forgotten(
    browser: Browser, open_page: PageOpener, transport: str
) -> None:
    """Killed in mid-answer and started again: the page says in words that the conversation is gone,
    marks the place, and begins another."""
    with serving() as (port, process):
        query = "?transport=websocket" if transport == "websocket" else ""
        demo = open_page(browser, f"http://127.0.0.1:{port}/{query}")
        page = demo.page
        page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
        ask(page, "Remember the word pear.")
        expect(page.locator(SHOWN).last).to_contain_text("two", timeout=LOAD_TIMEOUT_MS)
        page.evaluate(NOTE_NOTICES)
        os.kill(process, signal.SIGKILL)
        page.wait_for_selector("body[data-phase=lost]")
    with serving(port):
        page.wait_for_selector(".entry.break", timeout=LOAD_TIMEOUT_MS)
        said = page.evaluate("window.notices")
        assert any("no longer has this conversation" in notice for notice in said), said
        assert not any("resume_" in notice for notice in said), said
        assert page.locator(".entry.assistant").last.get_attribute("data-state") == "interrupted"
        page.wait_for_selector("body[data-phase=idle]")
        ask(page, "What did I just say?")
        expect(page.locator(SHOWN).last).to_have_text(ANSWER, timeout=LOAD_TIMEOUT_MS)


def test_a_conversation_that_is_not_kept_begins_anew(mock: MockGateway, workbench: Page) -> None:
    """After a loss with a token the page waits with open ends; refused, it says what is over."""
    state = workbench.evaluate(
        """async (events) => {
          const { Session } = await import("./session.js");
          const session = new Session();
          for (const event of events) session.receive(event);
          session.lost("Lost.", true);
          const kept = session.entries.at(-1).state;
          session.receive({ type: "session.created", session: {} });
          session.receive({ type: "session.updated", session: {} });
          return [kept, ...session.entries.map(({ role, state }) => `${role} ${state}`)];
        }""",
        [OPENED, CREATED, ITEM, delta("It is")],
    )
    assert state == ["open", "assistant interrupted", "break done"]


def test_items_that_come_again_are_drawn_once(mock: MockGateway, workbench: Page) -> None:
    """After a gap too long to be sent again the server tells each item anew."""
    user: dict[str, Any] = {"id": "u1", "type": "message", "role": "user", "status": "completed"}
    user["content"] = [{"type": "input_audio", "transcript": "Hello there."}]
    answer: dict[str, Any] = {"id": "a1", "type": "message", "role": "assistant"}
    answer |= {"status": "in_progress", "content": [{"type": "output_text", "text": "It is a"}]}
    state = workbench.evaluate(
        """async ([before, items]) => {
          const { Session } = await import("./session.js");
          const session = new Session();
          for (const event of before) session.receive(event);
          session.lost("Lost.", true);
          session.receive({ type: "session.updated", session: {} });
          session.receive({ type: "gateway.session.resumed", replayed_events: null });
          for (const item of items) session.receive({ type: "conversation.item.retrieved", item });
          session.receive({ type: "response.output_text.delta", item_id: "a1", delta: " fox." });
          return session.entries.map(({ id, text, state }) => [id, text, state]);
        }""",
        [[OPENED, CREATED, ITEM, delta("It is")], [user, answer]],
    )
    assert state == [["a1", "It is a fox.", "open"], ["u1", "Hello there.", "done"]]
