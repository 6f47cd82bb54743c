"""Talk, mute and hold to talk, by pointer and by keys, and what phones do to a page that talks."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.web_demo.conftest import OpenPage, PageOpener, chromium_alone
from tests.web_demo.mock_gateway import RATE_HZ, MockGateway, Script

NEVER_S = 1e9


def hold(demo: OpenPage) -> None:
    demo.page.check("#hold")
    demo.page.locator("#hold").blur()


def kinds(mock: MockGateway, *wanted: str) -> list[str]:
    return [m["type"] for m in mock.received.messages if m["type"] in wanted]


TURN = ("input_audio_buffer.clear", "input_audio_buffer.commit", "response.create")


def test_talk_changes_its_label_and_is_no_toggle(demo: OpenPage) -> None:
    """A label that changes and a pressed state contradict each other ("Stop, pressed"): Talk has
    only the first, Mute only the second."""
    talk, mute = demo.page.locator("#talk"), demo.page.locator("#mute")
    expect(talk).to_have_text("Talk")
    expect(mute).to_be_disabled()
    talk.click()
    demo.phase("listening")
    expect(talk).to_have_text("Stop")
    assert talk.get_attribute("aria-pressed") is None
    for pressed in ("true", "false"):
        mute.click()
        expect(mute).to_have_text("Mute")
        expect(mute).to_have_attribute("aria-pressed", pressed)


def test_muted_is_silent_but_goes_on(demo: OpenPage, mock: MockGateway) -> None:
    """The server gets silence, so that it still hears the pause which ends a turn."""
    mock.script = Script(start_s=NEVER_S)
    demo.page.click("#talk")
    demo.until(lambda: bool(np.frombuffer(bytes(mock.received.audio), "<i2").any()))
    demo.page.click("#mute")
    demo.phase("muted")

    def is_silent() -> bool:
        """For 1.5 s, in which a beep would have come; what was on its way may still sound."""
        newest = np.frombuffer(bytes(mock.received.audio[-3 * RATE_HZ :]), "<i2")
        return not newest.any()

    mock.received.audio.clear()
    demo.until(lambda: len(mock.received.audio) >= 3 * RATE_HZ and is_silent())
    mock.received.audio.clear()
    demo.page.click("#mute")
    demo.until(lambda: bool(np.frombuffer(bytes(mock.received.audio), "<i2").any()))


@pytest.mark.parametrize("way", ["pointer", "space", "space on the button", "screen reader"])
def test_hold_to_talk(demo: OpenPage, mock: MockGateway, way: str) -> None:
    """Without turn detection: held sound alone is sent, and the release makes it a turn and asks
    for the answer."""
    page = demo.page
    hold(demo)
    demo.until(lambda: len(mock.received.of_type("session.update")) == 2)
    heard = mock.received.of_type("session.update")[-1]["session"]["audio"]["input"]
    assert heard == {"turn_detection": None}
    expect(page.locator("#talk")).to_have_text("Hold to talk")
    assert page.locator("#mute").is_hidden()
    if way == "pointer":
        page.locator("#talk").hover()
        page.mouse.down()
    elif way == "screen reader":
        page.locator("#talk").evaluate("node => node.click()")
    else:
        if way == "space on the button":
            page.locator("#talk").focus()
        page.keyboard.down(" ")
    demo.phase("speaking")
    expect(page.locator("#talk")).to_have_text("Release to send")
    demo.until(lambda: len(mock.received.audio) > RATE_HZ)  # half a second
    if way == "pointer":
        page.mouse.up()
    elif way == "screen reader":
        page.locator("#talk").evaluate("node => node.click()")
    else:
        page.keyboard.up(" ")
    page.wait_for_selector(".entry.assistant[data-state=done]")
    assert kinds(mock, *TURN) == list(TURN)
    demo.phase("idle")
    sent = len(mock.received.audio)
    page.wait_for_timeout(300)
    assert len(mock.received.audio) == sent
    assert demo.complaints == []


def test_a_press_too_short_is_no_turn(demo: OpenPage, mock: MockGateway) -> None:
    """It is said what to do, and nothing is committed."""
    hold(demo)
    demo.page.locator("#talk").evaluate("node => node.click()")  # opens the microphone
    demo.phase("speaking")
    demo.page.wait_for_timeout(300)
    demo.page.locator("#talk").evaluate("node => node.click()")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    demo.page.evaluate(
        """async () => {
          const talk = document.getElementById("talk");
          talk.click();
          await Promise.resolve();
          talk.click();
        }"""
    )
    expect(demo.page.locator("#notice-text")).to_contain_text("Hold the button")
    assert kinds(mock, "input_audio_buffer.commit") == ["input_audio_buffer.commit"]


def test_holding_interrupts_an_answer_first(demo: OpenPage, mock: MockGateway) -> None:
    """The answer is cancelled with the press; the next one is asked for when it has ended."""
    mock.script = Script(holds_answer=True)
    hold(demo)
    demo.page.fill("#text", "one")
    demo.page.press("#text", "Enter")
    demo.phase("answering")
    mock.script = Script()
    demo.page.locator("#text").blur()
    demo.page.keyboard.down(" ")
    demo.phase("speaking")
    demo.page.wait_for_timeout(400)
    demo.page.keyboard.up(" ")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    wanted = ["response.create", "response.cancel", "input_audio_buffer.commit", "response.create"]
    assert kinds(mock, *wanted) == wanted


def test_leaving_the_window_releases(demo: OpenPage, mock: MockGateway) -> None:
    """The key's release goes to another window: the page does not listen on."""
    hold(demo)
    demo.page.keyboard.down(" ")
    demo.phase("speaking")
    demo.page.wait_for_timeout(400)
    demo.page.evaluate("() => window.dispatchEvent(new Event('blur'))")
    demo.page.wait_for_selector(".entry.assistant[data-state=done]")
    assert len(kinds(mock, "input_audio_buffer.commit")) == 1


def test_the_keys(demo: OpenPage) -> None:
    """M mutes, C shows captions, ? lists the keys; Space while muted hears for as long."""
    page = demo.page
    page.click("#talk")
    demo.phase("listening")
    page.locator("#talk").blur()
    page.keyboard.press("m")
    demo.phase("muted")
    page.evaluate(
        """() => {
          const { set } = Object.getOwnPropertyDescriptor(MediaStreamTrack.prototype, "enabled");
          window.states = [];
          Object.defineProperty(MediaStreamTrack.prototype, "enabled", {
            set(on) { window.states.push(on); set.call(this, on); }, get: () => true });
        }"""
    )
    page.keyboard.down(" ")
    page.keyboard.up(" ")
    assert page.evaluate("() => window.states") == [True, False]
    page.keyboard.press("m")
    demo.phase("listening")
    page.keyboard.press("c")
    page.wait_for_selector("#captions:not([hidden])")
    assert page.is_checked("#captions-on")
    page.keyboard.press("c")
    page.wait_for_selector("#captions", state="hidden")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    page.keyboard.press("m")  # the dialog has the keys now
    page.keyboard.press("Escape")
    page.wait_for_selector("#keys", state="hidden")
    demo.phase("listening")


def test_letters_in_a_text_field_are_letters(demo: OpenPage) -> None:
    """Typing "m c ?" types that, also while a button could be held; so do keys with a modifier."""
    page = demo.page
    hold(demo)
    page.locator("#text").press_sequentially("m c ?")
    assert page.input_value("#text") == "m c ?"
    assert page.locator("#captions").is_hidden()
    assert not page.locator("#keys").evaluate("node => node.open")
    demo.phase("idle")
    page.locator("#text").blur()
    page.keyboard.press("Control+c")
    assert page.locator("#captions").is_hidden()
    page.locator("#events").focus()
    page.keyboard.press(" ")  # a button that has the focus keeps its key
    page.wait_for_selector("#drawer:not([hidden])")
    demo.phase("idle")


def test_the_keys_can_be_turned_off(demo: OpenPage, mock: MockGateway) -> None:
    """For good; Escape still stops an answer."""
    page = demo.page
    page.click("#help")
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    for _ in range(2):
        page.keyboard.press("c")
        page.keyboard.press("?")
        assert page.locator("#captions").is_hidden()
        assert not page.locator("#keys").evaluate("node => node.open")
        page.reload()
        demo.phase("idle")
    mock.script = Script(holds_answer=True)
    page.fill("#text", "one")
    page.press("#text", "Enter")
    demo.phase("answering")
    page.keyboard.press("Escape")
    demo.phase("idle")
    assert kinds(mock, "response.cancel") == ["response.cancel"]


def test_what_a_phone_interrupts_goes_on_with_a_tap(
    browser: Browser, mock: MockGateway, open_page: PageOpener
) -> None:
    """iOS: the audio session is both ways, an interrupted graph asks for a tap, a muted track is
    explained, and the screen stays on while somebody talks."""
    demo = open_page(browser, mock.url)
    page = demo.page
    page.add_init_script(
        """
        navigator.audioSession = { type: "auto" };
        window.contexts = [];
        const Native = AudioContext;
        globalThis.AudioContext = class extends Native {
          constructor(...given) {
            super(...given);
            this.forced = null;
            window.contexts.push(this);
          }
          get state() { return this.forced ?? super.state; }
          async resume() {
            this.forced = null;
            await super.resume();
            this.dispatchEvent(new Event("statechange"));
          }
        };
        window.locks = [];
        const lock = () => ({ released: false, async release() { this.released = true; } });
        Object.defineProperty(navigator, "wakeLock", { value: {
          async request() { window.locks.push(lock()); return window.locks.at(-1); } } });
        """
    )
    page.reload()
    demo.phase("idle")
    page.click("#talk")
    demo.phase("listening")
    assert page.evaluate("() => navigator.audioSession.type") == "play-and-record"
    page.wait_for_function("() => window.locks.length === 1 && !window.locks[0].released")
    page.evaluate(
        """() => { for (const context of window.contexts) {
          context.forced = "interrupted"; context.dispatchEvent(new Event("statechange")); } }"""
    )
    expect(page.locator("#go-on")).to_be_visible()
    expect(page.locator("#go-on")).to_have_text("Tap to continue")
    page.click("#go-on")
    expect(page.locator("#go-on")).to_be_hidden()
    page.click("#talk")
    demo.phase("idle")
    assert page.evaluate("() => navigator.audioSession.type") == "auto"
    page.wait_for_function("() => window.locks.every((lock) => lock.released)")
    assert demo.complaints == []


@chromium_alone("Firefox gives no listener of a track an event that a script makes")
def test_a_microphone_that_ends_or_falls_silent_is_said(demo: OpenPage) -> None:
    """The system mutes the track: said until it ends. The device goes: said, and Talk is back."""
    page = demo.page
    page.evaluate(
        """() => {
          const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = async (wanted) => {
            const stream = await open(wanted);
            [window.track] = stream.getAudioTracks();
            return stream;
          };
        }"""
    )
    page.click("#talk")
    demo.phase("listening")
    page.evaluate("() => window.track.dispatchEvent(new Event('mute'))")
    expect(page.locator("#notice-text")).to_contain_text("such as a phone call")
    page.evaluate("() => window.track.dispatchEvent(new Event('unmute'))")
    expect(page.locator("#notice")).to_be_hidden()
    page.evaluate("() => window.track.dispatchEvent(new Event('ended'))")
    expect(page.locator("#notice-text")).to_have_text("The microphone was disconnected.")
    demo.phase("idle")
