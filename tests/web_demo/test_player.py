"""Spoken answers on the page: played sample by sample, and silent at once when somebody speaks."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
from playwright.sync_api import Page

from headstart.gateway.protocol.events import Events
from headstart.gateway.protocol.ids import IdMaker
from tests.web_demo.conftest import OpenPage
from tests.web_demo.mock_gateway import MockGateway, Script


def ask(demo: OpenPage) -> None:
    demo.page.fill("#text", "What is the capital of France?")
    demo.page.click("#send")


def played_ms(demo: OpenPage) -> float:
    return float(demo.page.locator("body").get_attribute("data-played-ms") or 0)


def test_an_answer_is_played_to_its_end(demo: OpenPage, mock: MockGateway) -> None:
    """The audio thread counts every sample of it, and then it is quiet."""
    mock.script = Script(sound_s=1.0)
    ask(demo)
    demo.page.wait_for_selector("body[data-sound=playing]")
    demo.page.wait_for_selector("body[data-sound=quiet]")
    assert played_ms(demo) == pytest.approx(1000, abs=21)
    assert demo.complaints == []


def test_speaking_over_it_stops_the_sound(demo: OpenPage, mock: MockGateway) -> None:
    """And tells the server, once, how much of it was heard."""
    mock.script = Script(sound_s=10.0, interrupts_after_s=0.8)
    ask(demo)
    demo.page.wait_for_selector("body[data-sound=playing]")
    demo.until(lambda: bool(mock.received.of_type("conversation.item.truncate")))
    demo.page.wait_for_selector("body[data-sound=quiet]")
    before = played_ms(demo)
    demo.page.wait_for_timeout(300)
    assert played_ms(demo) == before
    (cut,) = mock.received.of_type("conversation.item.truncate")
    assert 0 <= cut["audio_end_ms"] < 5_000
    assert demo.page.locator(".entry.assistant").count() == 1


EVENTS = Events(IdMaker())


def interruption(state: Literal["possible", "real", "false"]) -> dict[str, Any]:
    return EVENTS.interruption(state, turn=1, item_id="item_over_it")


def stand_still(demo: OpenPage, mock: MockGateway) -> float:
    """Somebody speaks over an answer of ten seconds. Returns what was played until then."""
    mock.script = Script(sound_s=10.0)
    ask(demo)
    demo.page.wait_for_selector("body[data-sound=playing]")
    mock.tell(interruption("possible"))
    demo.page.wait_for_selector("body[data-sound=held]")
    return played_ms(demo)


def test_a_possible_interruption_stops_the_sound_and_a_false_one_lets_it_go_on(
    demo: OpenPage, mock: MockGateway
) -> None:
    """Nothing of the answer is lost, and the server is told of no truncation."""
    held = stand_still(demo, mock)
    demo.page.wait_for_timeout(300)
    assert played_ms(demo) == held
    mock.tell(interruption("false"))
    demo.page.wait_for_selector("body[data-sound=quiet]")
    assert played_ms(demo) == pytest.approx(10_000, abs=21)
    assert not mock.received.of_type("conversation.item.truncate")
    assert demo.complaints == []


def test_a_real_interruption_cuts_the_answer_where_it_stood_still(
    demo: OpenPage, mock: MockGateway
) -> None:
    """Between the first sound of the person and their words nothing more is played."""
    held = stand_still(demo, mock)
    mock.tell(interruption("real"))
    mock.tell(EVENTS.speech_started("item_over_it", 0))
    demo.until(lambda: bool(mock.received.of_type("conversation.item.truncate")))
    (cut,) = mock.received.of_type("conversation.item.truncate")
    assert cut["audio_end_ms"] == pytest.approx(held, abs=1)
    assert demo.complaints == []


HOLD = """async () => {
  const { Player } = await import("./player.js");
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let playedMs = 0;
  let playing = true;
  const player = new Player((ms, more) => { playedMs = ms; playing = more; });
  await player.open();
  player.push("a1", new Int16Array(24_000));
  while (playedMs === 0) await sleep(5);
  player.hold(true);
  let before = -1;
  while (before !== playedMs) { before = playedMs; await sleep(100); }
  const held = playedMs;
  player.hold(false);
  while (playing) await sleep(5);
  return { held, played: playedMs };
}"""


def test_the_sound_stands_still_and_goes_on(demo: OpenPage) -> None:
    """While it is not known whether somebody interrupts; none of it is lost."""
    ask(demo)  # a touch of the page lets it sound
    ms = demo.page.evaluate(HOLD)
    assert 0 < ms["held"] < 1000
    assert ms["played"] == pytest.approx(1000, abs=21)


HEARD_AT = """async (agent) => {
  Object.defineProperty(navigator, "userAgent", {
    get: () => agent,
    configurable: true,
  });
  const { Player } = await import(`./player.js?${encodeURIComponent(agent)}`);
  const player = new Player(() => {});
  let stamps = 0;
  let latencies = 0;
  player.context = {
    currentTime: 1,
    get outputLatency() {
      latencies += 1;
      return 0.01;
    },
    getOutputTimestamp() {
      stamps += 1;
      return { contextTime: 1, performanceTime: performance.now() + 20 };
    },
  };
  const aheadMs = player.heardAtMs(1.1) - performance.now();
  delete navigator.userAgent;
  return { stamps, latencies, aheadMs };
}"""


def test_firefox_is_not_asked_when_its_output_was_heard(workbench: Page) -> None:
    """Nor of its latency: there both questions can hang the page while a microphone is open."""
    firefox = workbench.evaluate(
        HEARD_AT, "Mozilla/5.0 (X11; rv:153.0) Gecko/20100101 Firefox/153.0"
    )
    assert (firefox["stamps"], firefox["latencies"]) == (0, 0)
    assert 100 < firefox["aheadMs"] <= 150
    other = workbench.evaluate(HEARD_AT, "Mozilla/5.0 (X11) Chrome/156.0.0.0 Safari/537.36")
    assert other["stamps"] == 1
    assert 0 < other["aheadMs"] <= 120


REFUSED_FIRST = """async () => {
  const { Call } = await import("./call.js");
  const call = new Call();
  const source = new AudioContext().createMediaStreamDestination();
  const { play } = call.speaker;
  call.speaker.play = () => Promise.reject(new DOMException("no touch yet", "NotAllowedError"));
  call.peer.ontrack({ track: source.stream.getAudioTracks()[0] });
  const refused = call.speaker.paused;
  call.speaker.play = play;
  call.sound();
  const { paused } = call.speaker;
  call.close();
  return { refused, paused };
}"""


def test_a_call_sounds_from_a_touch_where_it_was_refused_before(workbench: Page) -> None:
    """Safari refuses it as the page opens; what was refused does not begin by itself."""
    assert workbench.evaluate(REFUSED_FIRST) == {"refused": True, "paused": False}


def test_the_voice_can_be_turned_off(demo: OpenPage, mock: MockGateway) -> None:
    """What is being said stops, and the session asks for text from then on."""
    mock.script = dataclasses.replace(Script(), sound_s=10.0)
    ask(demo)
    demo.page.wait_for_selector("body[data-sound=playing]")
    demo.page.uncheck("#voice")
    demo.page.wait_for_selector("body[data-sound=quiet]")
    demo.until(lambda: len(mock.received.of_type("session.update")) == 2)
    session = mock.received.of_type("session.update")[-1]["session"]
    assert session["output_modalities"] == ["text"]


def test_samples_come_out_of_the_wire_as_they_went_in(workbench: Page) -> None:
    """Base64 and back: low byte first, both signs."""
    code = """async () => {
      const { fromBase64, toBase64, toBytes } = await import("/protocol.js");
      return Array.from(fromBase64(toBase64(toBytes(Int16Array.of(0, 1, -1, 32767, -32768)))));
    }"""
    assert workbench.evaluate(code) == [0, 1, -1, 32767, -32768]
