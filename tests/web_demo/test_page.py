"""The page in a real browser, against the scripted gateway."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import av
import pytest
from playwright.sync_api import Browser, WebSocket

from tests.web_demo.conftest import BrowserFactory, OpenPage, PageOpener, chromium_alone
from tests.web_demo.mock_gateway import STAGES_MS, VOICE_MS, MockGateway, Script

NEVER_S = 1e9
MARKUP = "<img src=x onerror=\"document.title='run'\"><b>bold</b>"


def ask(demo: OpenPage, text: str) -> None:
    demo.page.fill("#text", text)
    demo.page.press("#text", "Enter")


def said(demo: OpenPage) -> list[tuple[str, str]]:
    """(role, text) of the conversation on the page."""
    return [
        (
            "user" if "user" in (row.get_attribute("class") or "") else "assistant",
            row.locator(".words").inner_text(),
        )
        for row in demo.page.locator(".entry").all()
    ]


def test_the_page_loads_clean(demo: OpenPage, mock: MockGateway) -> None:
    """No console error or warning, and the session asks for exactly what the page can show."""
    assert demo.complaints == []
    assert mock.received.models == ["mock"]
    (update,) = mock.received.of_type("session.update")
    session = update["session"]
    assert session["output_modalities"] == ["audio"]
    assert session["audio"]["input"]["turn_detection"]["type"] == "server_vad"
    assert session["gateway"] == {
        "events": [
            *("latency", "chunks", "hearing", "engine", "voice", "interruption", "turn", "frames"),
        ],
        "endpointing": "eager",
        "resume": True,
    }


def test_a_spoken_turn_is_shown(demo: OpenPage, mock: MockGateway) -> None:
    """Talk, and the words, the answer and the chunks' headroom come; Stop closes the microphone."""
    demo.page.click("#talk")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    assert said(demo) == [
        ("user", "What is the capital of France?"),
        ("assistant", "The capital of France is Paris."),
    ]
    demo.phase("listening")
    assert demo.page.locator("#chunks .chunk").count() == len(mock.script.hearings)
    assert demo.text("#headroom") == "78 %"  # 542 ms of work for five chunks of 500 ms
    assert demo.text("#announcer") == "Answer: The capital of France is Paris."
    demo.page.click("#talk")
    demo.phase("idle")
    assert demo.complaints == []


def test_words_appear_before_the_end(demo: OpenPage, mock: MockGateway) -> None:
    """While the person speaks, committed words are solid and tentative ones are grey."""
    mock.script = Script(hearings=mock.script.hearings[:-1], stop_s=NEVER_S)
    demo.page.click("#talk")
    tentative = demo.page.locator(".entry.user .tentative")
    tentative.filter(has_text="friends").wait_for()
    assert demo.text(".entry.user .words") == "What is the capital of"
    colour = "node => getComputedStyle(node).color"
    words = demo.page.locator(".entry.user .words")
    assert tentative.evaluate(colour) != words.evaluate(colour)
    assert demo.page.get_attribute("body", "data-phase") == "speaking"


def test_the_budget_bar_is_the_report(demo: OpenPage) -> None:
    """One segment per stage that took time, in order, adding up to the big total."""
    demo.page.click("#talk")
    demo.page.wait_for_selector("#budget:not([hidden])")
    drawn = demo.page.locator("#bar .segment").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.stage, Number(n.dataset.ms), n.offsetWidth])"
    )
    wanted = [(stage, ms) for stage, ms in STAGES_MS.items() if ms]
    assert [(stage, ms) for stage, ms, _ in drawn] == wanted
    total_ms = sum(ms for _, ms in wanted)
    assert demo.text("#total") == f"{total_ms:.0f} ms"
    bar_px = sum(width for _, _, width in drawn)
    for stage, ms, width in drawn:
        assert width == pytest.approx(bar_px * ms / total_ms, abs=20), stage
    assert "Not measured: on its way here." in demo.text("#others")
    assert demo.text("#verdict") == "Within the budget of 800 ms"
    assert demo.text("#hidden") == "300 ms"
    assert demo.text("#later") == "60 ms"  # all work of WORK_MS less what was hidden


def test_the_budget_of_a_spoken_answer_goes_on_to_its_sound(
    demo: OpenPage, mock: MockGateway
) -> None:
    """The voice has its segment and is part of the big total; what was not heard is said."""
    mock.script = Script(sound_s=0.3)
    demo.page.click("#talk")
    demo.page.wait_for_selector("#budget:not([hidden])")
    wanted = {stage: ms for stage, ms in STAGES_MS.items() if ms} | {"voice": VOICE_MS}
    drawn = demo.page.locator("#bar .segment").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.stage, Number(n.dataset.ms)])"
    )
    assert dict(drawn) == wanted
    assert demo.text("#total") == f"{sum(wanted.values()):.0f} ms"
    assert demo.text("#caption") == "from your last sound to the first sound of the answer"
    word = f"first word after {sum(wanted.values()) - VOICE_MS:.0f} ms"
    assert demo.text("#verdict") == f"Within the budget of 800 ms: {word}"
    assert "sent until heard" in demo.text("#others")


def test_a_blown_budget_is_red(demo: OpenPage, mock: MockGateway) -> None:
    """Over the budget: said in words, and in the colour of trouble."""
    mock.stages_ms = STAGES_MS | {"prefill": 400.0}
    demo.page.click("#talk")
    demo.page.wait_for_selector("#budget[data-state=over]")
    assert demo.text("#verdict") == "Over the budget of 800 ms"
    total, caption = demo.page.locator("#total"), demo.page.locator("#caption")
    colour = "node => getComputedStyle(node).color"
    assert total.evaluate(colour) != caption.evaluate(colour)


def test_a_typed_turn(demo: OpenPage, mock: MockGateway) -> None:
    """Text goes out as an item and a request for an answer; its budget has no speech in it."""
    ask(demo, "  Who are you?  ")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    (created,) = mock.received.of_type("conversation.item.create")
    assert created["item"]["content"] == [{"type": "input_text", "text": "Who are you?"}]
    assert len(mock.received.of_type("response.create")) == 1
    assert said(demo)[0] == ("user", "Who are you?")
    assert demo.text("#caption") == "from your question to the first word of the answer"
    assert demo.page.locator("#head-start").is_hidden()
    assert demo.page.input_value("#text") == ""


@chromium_alone("Playwright sees no frames of Firefox's WebSockets")
def test_typing_into_an_answer_ends_it_first(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """One answer at a time: the next turn goes out when the cancelled one is over, not before."""
    kinds: list[str] = []  # sent and received, in the order in which the browser saw them

    def record(frame: str | bytes) -> None:
        kinds.append(json.loads(frame)["type"])

    def on_socket(socket: WebSocket) -> None:
        socket.on("framesent", record)
        socket.on("framereceived", record)

    demo = open_page(browser, mock.url)
    demo.page.on("websocket", on_socket)
    demo.page.reload()
    demo.phase("idle")
    mock.script = Script(holds_answer=True)
    ask(demo, "one")
    demo.phase("answering")
    mock.script = Script()
    ask(demo, "two")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    turn = ["conversation.item.create", "response.create"]
    kept = {*turn, "response.cancel", "response.done"}
    wanted = [*turn, "response.cancel", "response.done", *turn, "response.done"]
    assert [kind for kind in kinds if kind in kept] == wanted
    first = demo.page.locator(".entry.assistant").first
    assert first.get_attribute("data-state") == "interrupted"
    assert "interrupted" in first.inner_text()


def test_escape_stops_the_answer(demo: OpenPage, mock: MockGateway) -> None:
    """The Escape key cancels the running answer and nothing else."""
    mock.script = Script(holds_answer=True)
    ask(demo, "one")
    demo.phase("answering")
    demo.page.keyboard.press("Escape")
    demo.phase("idle")
    assert len(mock.received.of_type("response.cancel")) == 1


def test_text_is_never_markup(demo: OpenPage, mock: MockGateway) -> None:
    """What was typed, heard, answered or reported as an error is shown letter by letter."""
    heard = ((0.6, MARKUP, MARKUP),)
    mock.script = Script(hearings=heard, stop_s=0.8, answer=(MARKUP,))
    ask(demo, MARKUP)
    demo.page.click("#talk")
    demo.page.locator(".entry.assistant[data-state=done]").nth(1).wait_for()
    assert [text for _, text in said(demo)] == [MARKUP] * 4
    mock.script = Script(error=MARKUP)
    ask(demo, "x")
    demo.page.wait_for_selector("#notice:not([hidden])")
    assert demo.text("#notice-text") == MARKUP
    assert demo.page.locator("main img, main .words b").count() == 0
    assert demo.page.title() == "headstart"


def test_an_error_is_said_and_over(demo: OpenPage, mock: MockGateway) -> None:
    """The server's sentence is shown; the next turn works and takes it away."""
    mock.script = Script(error="The conversation is too long.")
    ask(demo, "x")
    demo.page.wait_for_selector("#notice:not([hidden])")
    assert demo.text("#notice-text") == "The conversation is too long."
    mock.script = replace(mock.script, error=None)
    ask(demo, "y")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    assert demo.page.locator("#notice").is_hidden()


def test_the_camera_sends_a_picture_a_second(demo: OpenPage, mock: MockGateway) -> None:
    """Ticked: one JPEG no wider than 512 at once and one each second; unticked: no more."""

    def second(camera_on: bool) -> None:
        """One second of the page's clock, then a typed turn, which the server takes in order."""
        before = len(mock.received.images)
        demo.page.clock.fast_forward(1_000)
        if camera_on:
            demo.until(lambda: len(mock.received.images) == before + 1)
        answers = demo.page.locator(".entry.assistant[data-state=done]")
        wanted = answers.count()
        ask(demo, "and now?")
        answers.nth(wanted).wait_for()

    demo.page.clock.install()
    demo.page.check("#camera")
    demo.page.wait_for_selector("#preview:not([hidden])")
    demo.until(lambda: len(mock.received.images) == 1)
    second(camera_on=True)
    assert len(mock.received.images) == 2
    demo.page.uncheck("#camera")
    demo.page.wait_for_selector("#preview", state="hidden")
    second(camera_on=False)
    assert len(mock.received.images) == 2
    picture = av.open(io.BytesIO(mock.received.images[-1]), "r")
    frame = next(picture.decode(video=0))
    assert (frame.width, frame.height) == (512, 384)


def test_a_refused_microphone_is_explained(
    browser_factory: BrowserFactory, mock: MockGateway, open_page: PageOpener
) -> None:
    """Without permission: one clear sentence, and typing still works."""
    careful = browser_factory("--use-fake-device-for-media-stream", "--deny-permission-prompts")
    demo = open_page(careful, mock.url)
    demo.phase("idle")
    demo.page.click("#talk")
    demo.page.wait_for_selector("#notice:not([hidden])")
    assert demo.text("#notice-text").startswith("The microphone was not allowed.")
    demo.phase("idle")
    ask(demo, "hello")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")


def test_everything_is_reached_by_keyboard(demo: OpenPage) -> None:
    """Tab passes through the suggestions, the conversation, Talk, the text box, Send and camera."""
    reached = []
    for _ in range(16):
        demo.page.keyboard.press("Tab")
        reached.append(
            demo.page.evaluate("document.activeElement.id || document.activeElement.dataset.ask")
        )
    assert [name for name in reached if name in ("talk", "text", "send", "camera")] == [
        "talk",
        "text",
        "send",
        "camera",
    ]


def test_no_sideways_scrolling(demo: OpenPage) -> None:
    """From a small phone to a desktop, the page with a full turn fits its width."""
    ask(demo, "averyveryverylongwordwithoutanyspaces" * 5)
    demo.page.wait_for_selector("#budget:not([hidden])")
    for width in (320, 390, 768, 1280):
        demo.page.set_viewport_size({"width": width, "height": 800})
        assert demo.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_state_stays_beside_the_name_on_a_phone(demo: OpenPage) -> None:
    """Whatever the state is called, on a screen of 360 px it starts no line of its own."""
    demo.page.set_viewport_size({"width": 360, "height": 800})
    own_line = demo.page.evaluate(
        """async () => {
          const { PHASES } = await import("./view.js");
          const [name, state] = ["h1", "#phase"].map((at) => document.querySelector(at));
          const below = (text) => {
            state.textContent = text;
            return state.getBoundingClientRect().top >= name.getBoundingClientRect().bottom;
          };
          return Object.values(PHASES).filter(below);
        }"""
    )
    assert own_line == []
