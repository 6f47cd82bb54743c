"""Devices: what is said when one does not open, the check before talking, and the one chosen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.web_demo.conftest import ON_FIREFOX, OpenPage, PageOpener, chromium_alone
from tests.web_demo.mock_gateway import MockGateway
from tests.web_demo.page_bench import FAILS

NOTED = "#notice:not([hidden])"
# Records each request; fails for an exact device id, as a browser does that has it no more.
UNPLUGGED = """
const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
window.asked = [];
navigator.mediaDevices.getUserMedia = async (wanted) => {
  window.asked.push(wanted);
  const kind = wanted.audio ?? wanted.video;
  if (kind.deviceId) throw new DOMException("", "OverconstrainedError");
  return open(wanted);
};
localStorage.setItem("headstart.device.microphone", "gone");
"""
NEVER = """navigator.mediaDevices.getUserMedia = () => {
  window.asked = true;
  return new Promise(() => {});
};"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotAllowedError", "was not allowed"),
        ("NotFoundError", "No microphone was found"),
        ("NotReadableError", "in use by another program"),
        ("OverconstrainedError", "Choose another under Devices"),
        ("AbortError", "stopped while it was being opened"),
        ("SecurityError", "settings forbid"),
        ("TypeError", "did not open: it failed"),
    ],
)
def test_each_failure_is_explained(demo: OpenPage, name: str, said: str) -> None:
    """One sentence of what to do, and the way around: typing."""
    demo.page.evaluate(FAILS, name)
    demo.page.click("#talk")
    demo.page.wait_for_selector(NOTED)
    text = demo.text("#notice-text")
    assert said in text
    assert text.endswith("Or type your question.")
    demo.phase("idle")
    assert demo.complaints == []


def test_the_systems_refusal_is_not_the_persons(demo: OpenPage) -> None:
    """Chrome tells the two apart by their words alone."""
    demo.page.evaluate(
        """() => { navigator.mediaDevices.getUserMedia = async () => {
          throw new DOMException("Permission denied by system", "NotAllowedError"); }; }"""
    )
    demo.page.click("#talk")
    expect(demo.page.locator("#notice-text")).to_contain_text("system's settings")


@pytest.mark.parametrize(
    ("secure", "said"), [(False, "only to https pages"), (True, "This browser gives pages no")]
)
def test_a_page_without_devices_says_why(
    browser: Browser, mock: MockGateway, open_page: PageOpener, secure: bool, said: str
) -> None:
    """No `mediaDevices` is an insecure page, or an old browser; a camera's sentence says camera."""
    demo = open_page(browser, mock.url)
    demo.page.add_init_script(
        f"""Object.defineProperty(Navigator.prototype, "mediaDevices", {{ get: () => undefined }});
        Object.defineProperty(window, "isSecureContext", {{ get: () => {str(secure).lower()} }});"""
    )
    demo.page.reload()
    demo.phase("idle")
    demo.page.click("#talk")
    expect(demo.page.locator("#notice-text")).to_contain_text(said)
    demo.page.click("#camera")
    expect(demo.page.locator("#notice-text")).to_contain_text("camera")
    assert not demo.page.is_checked("#camera")
    demo.page.click("#devices")
    expect(demo.page.locator("#check-note")).to_contain_text(said)
    assert demo.complaints == []


def test_a_browser_that_waits_is_said_to_ask(demo: OpenPage) -> None:
    """A promise that never settles: after five seconds the page says where to look, and the person
    can give it up and try again."""
    page = demo.page
    page.evaluate(f"() => {{ {NEVER} }}")
    page.clock.install(time=0)
    page.clock.pause_at(1_000)  # from here on only the test lets time pass
    page.click("#talk")
    demo.until(lambda: bool(page.evaluate("() => window.asked")))
    page.clock.run_for(4_900)
    demo.phase("opening")
    assert page.locator("#notice").is_hidden()
    page.clock.run_for(200)
    expect(page.locator("#notice-text")).to_contain_text("Your browser is asking")
    assert page.get_attribute("#notice", "data-kind") == "news"
    expect(page.locator("#talk")).to_have_text("Cancel")
    page.click("#talk")
    page.clock.run_for(100)
    demo.phase("idle")
    assert page.locator("#notice").is_hidden()


def test_a_late_yes_to_what_was_given_up_opens_nothing(demo: OpenPage) -> None:
    """The stream that comes after all is stopped at once, and the page stays as it is."""
    page = demo.page
    page.evaluate(
        """() => {
          const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = async (wanted) => {
            await new Promise((resolve) => { window.allow = resolve; });
            window.late = await open(wanted);
            return window.late;
          };
        }"""
    )
    page.click("#talk")
    page.wait_for_function("() => window.allow")
    page.click("#talk")
    page.evaluate("() => window.allow()")
    page.wait_for_function("() => window.late?.getTracks().every((t) => t.readyState === 'ended')")
    demo.phase("idle")
    assert demo.complaints == []


def test_a_device_that_is_gone_is_forgotten(demo: OpenPage) -> None:
    """OverconstrainedError with the stored id: once more without it, and the page listens."""
    demo.page.evaluate(f"() => {{ {UNPLUGGED} }}")
    demo.page.click("#talk")
    demo.phase("listening")
    asked = demo.page.evaluate("() => window.asked.map(({ audio }) => audio.deviceId ?? null)")
    assert asked == [{"exact": "gone"}, None]
    assert demo.page.evaluate("() => localStorage.getItem('headstart.device.microphone')") is None


def test_the_check_shows_that_everything_works(demo: OpenPage) -> None:
    """Names in the pickers, a bar that moves, a chime, the echo of three seconds, the camera; then
    it closes what it opened, and the conversation begins."""
    page = demo.page
    page.evaluate(
        """() => {
          window.played = [];
          const start = AudioBufferSourceNode.prototype.start;
          AudioBufferSourceNode.prototype.start = function (...when) {
            const loud = this.buffer.getChannelData(0).some((x) => Math.abs(x) > 0.05);
            window.played.push([this.buffer.duration, loud]);
            return start.apply(this, when);
          };
          window.streams = [];
          const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = async (wanted) => {
            const stream = await open(wanted);
            window.streams.push(stream);
            return stream;
          };
        }"""
    )
    page.click("#first-check")
    expect(page.locator("#meter-words")).to_have_text("You can be heard.")
    assert page.locator("#pick-microphone option").count() > 1
    named = "Default Audio Device" if ON_FIREFOX else "Fake"
    assert named in page.locator("#pick-microphone option").nth(1).inner_text()
    page.click("#chime")
    expect(page.locator("#chime-words")).to_contain_text("Three notes")
    page.click("#echo")
    expect(page.locator("#echo-words")).to_contain_text("Speak now")
    expect(page.locator("#echo-words")).to_have_text("That is how you sound.", timeout=30_000)
    ((duration_s, loud),) = page.evaluate("() => window.played")
    assert 1.5 < duration_s < 4.5
    assert loud
    page.click("#try-camera")
    page.wait_for_selector("#check-video:not([hidden])")
    page.click("#check-talk")
    demo.phase("listening")
    live = page.evaluate(
        "() => window.streams.map((s) => s.getTracks().some((t) => t.readyState === 'live'))"
    )
    assert live.count(True) == 1  # the conversation's own
    assert demo.complaints == []


def test_the_check_without_a_server_says_what_it_cannot_do(
    browser: Browser, own_server: MockGateway, open_page: PageOpener
) -> None:
    """With the server gone the devices are listed, the chime and the camera work, and for the bar
    it says what is missing: not that something is wrong with the microphone. Nothing stays open."""
    demo = open_page(browser, own_server.url)
    demo.phase("idle")
    own_server.stop()
    demo.phase("lost")
    page = demo.page
    page.click("#devices")
    expect(page.locator("#check-note")).to_contain_text("did not answer")
    assert "Unplug" not in page.locator("#check-note").inner_text()
    assert page.locator("#echo").is_disabled()
    page.click("#chime")
    expect(page.locator("#chime-words")).to_contain_text("Three notes")
    page.click("#try-camera")
    page.wait_for_selector("#check-video:not([hidden])")
    page.click("#check-talk")
    page.wait_for_selector("#check", state="hidden")
    demo.phase("lost")
    expect(page.locator("#notice-text")).to_contain_text("Trying again in")
    assert demo.text("#talk-label") == "Talk"


def test_a_check_that_is_open_outlives_its_server(
    browser: Browser, own_server: MockGateway, open_page: PageOpener
) -> None:
    """Bar and echo are the browser's own work once they run; their thresholds are the page's."""
    demo = open_page(browser, own_server.url)
    demo.phase("idle")
    page = demo.page
    page.click("#devices")
    expect(page.locator("#echo")).to_be_enabled()
    own_server.stop()
    demo.phase("lost")
    expect(page.locator("#meter-words")).to_have_text("You can be heard.")
    page.click("#echo")
    expect(page.locator("#echo-words")).to_have_text("That is how you sound.", timeout=30_000)


def test_the_check_can_be_skipped(demo: OpenPage) -> None:
    """Talk needs no check; Close and Escape close it and open nothing."""
    page = demo.page
    for leave in ("#check-skip", "Escape"):
        page.click("#devices")
        page.wait_for_selector("#check[open]")
        if leave == "Escape":
            page.keyboard.press("Escape")
        else:
            page.click(leave)
        page.wait_for_selector("#check", state="hidden")
        demo.phase("idle")


def test_nobody_answers_the_echo_test(demo: OpenPage, mock: MockGateway) -> None:
    """While the devices are checked the conversation hears nothing; after it, it does again."""
    page = demo.page
    page.click("#talk")
    demo.phase("listening")
    page.click("#devices")
    page.wait_for_selector("#check[open]")
    heard = -1
    while heard != len(mock.received.audio):  # what was on its way; the test's limit ends it
        heard = len(mock.received.audio)
        page.wait_for_timeout(400)
    page.click("#check-skip")
    demo.until(lambda: len(mock.received.audio) > heard)


@chromium_alone("Firefox's fake devices have one microphone, so no choice")
def test_a_chosen_microphone_is_used(demo: OpenPage) -> None:
    """It is asked for by its id, now and after a reload."""
    page = demo.page
    page.click("#devices")
    page.wait_for_function("() => document.querySelectorAll('#pick-microphone option').length > 2")
    chosen = page.locator("#pick-microphone option").nth(2).get_attribute("value")
    page.select_option("#pick-microphone", chosen)
    expect(page.locator("#echo")).to_be_enabled()
    page.click("#check-skip")
    page.reload()
    demo.phase("idle")
    page.evaluate(
        """() => {
          const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = (wanted) => {
            window.wanted = wanted;
            return open(wanted);
          };
        }"""
    )
    page.click("#talk")
    demo.phase("listening")
    assert page.evaluate("() => window.wanted.audio.deviceId") == {"exact": chosen}
