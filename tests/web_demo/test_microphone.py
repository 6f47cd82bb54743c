"""What the microphone hears is what the server gets: 24 kHz, 40 ms packets, the same sound."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soxr

from tests.web_demo import chromium
from tests.web_demo.conftest import BrowserFactory, OpenPage, PageOpener, chromium_alone
from tests.web_demo.mock_gateway import RATE_HZ, MockGateway, Script

MICROPHONE_HZ = 48_000
PACKET_SAMPLES = 960
FIRST_S, SECOND_S, LENGTH_S = 0.5, 3.0, 5.4  # where the clip is said in the fake microphone's file
NEVER_S = 1e9
# 1.0 on a quiet machine; on a busy one the browser's fake device itself drops buffers of 10 ms.
ALIKE = 0.5
DROPPED_S = 0.05
# The page asks for echo and gain control; what those do to a sound is the browser's affair.
UNTOUCHED = """
const devices = navigator.mediaDevices;
const open = devices.getUserMedia.bind(devices);
devices.getUserMedia = () => open({ audio: {
  echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1,
} });
"""

Samples = npt.NDArray[np.float64]


def read(path: Path) -> Samples:
    with wave.open(str(path), "rb") as clip:
        assert clip.getframerate() == RATE_HZ
        return np.frombuffer(clip.readframes(clip.getnframes()), "<i2") / 32_768


@pytest.fixture(scope="module")
def question(clips: Path) -> Samples:
    return read(clips / "capital.wav")


@pytest.fixture(scope="module")
def twice(question: Samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The question, said at FIRST_S and again at SECOND_S, at the fake microphone's rate."""
    whole = np.zeros(round(LENGTH_S * RATE_HZ))
    for at_s in (FIRST_S, SECOND_S):
        at = round(at_s * RATE_HZ)
        whole[at : at + question.size] += question
    path = tmp_path_factory.mktemp("microphone") / "twice.wav"
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(MICROPHONE_HZ)
        pcm = np.round(soxr.resample(whole, RATE_HZ, MICROPHONE_HZ) * 32_767)
        out.writeframes(pcm.astype("<i2").tobytes())
    return path


def likeness(sound: Samples, pattern: Samples) -> Samples:
    """Normalised cross-correlation of `pattern` with each place in `sound`: (places,), -1 to 1."""
    size = 1 << (sound.size + pattern.size).bit_length()
    spectrum = np.fft.rfft(sound, size) * np.conj(np.fft.rfft(pattern, size))
    products = np.fft.irfft(spectrum, size)[: sound.size - pattern.size + 1]
    sums = np.concatenate([[0.0], np.cumsum(sound**2)])
    energies = sums[pattern.size :] - sums[: -pattern.size]
    alike: Samples = products / np.sqrt(np.maximum(energies, 1e-6) * (pattern**2).sum())
    return alike


def listen(demo: OpenPage, mock: MockGateway, seconds: float) -> Samples:
    """Talk until so much sound has arrived, then Stop."""
    mock.script = Script(start_s=NEVER_S)
    demo.phase("idle")
    demo.page.evaluate(f"() => {{ {UNTOUCHED} }}")
    demo.page.click("#talk")
    demo.until(lambda: len(mock.received.audio) >= 2 * RATE_HZ * seconds)
    demo.page.click("#talk")
    demo.phase("idle")
    return np.frombuffer(bytes(mock.received.audio), "<i2") / 32_768


def test_the_server_hears_the_microphone(
    browser_factory: BrowserFactory,
    mock: MockGateway,
    open_page: PageOpener,
    question: Samples,
    twice: Path,
) -> None:
    """Both sayings of the question arrive, 2.5 s of samples apart at 24 kHz."""
    browser = browser_factory(*chromium.fake_microphone(twice))
    heard = listen(open_page(browser, mock.url), mock, LENGTH_S)
    assert set(mock.received.packets) == {PACKET_SAMPLES}
    alike = likeness(heard, question)
    places = []
    for _ in range(2):
        best = int(alike.argmax())
        assert alike[best] > ALIKE
        places.append(best)
        alike[max(0, best - RATE_HZ) : best + RATE_HZ] = 0.0
    apart_s = abs(places[1] - places[0]) / RATE_HZ
    assert apart_s == pytest.approx(SECOND_S - FIRST_S, abs=DROPPED_S)


@chromium_alone("Firefox's fake microphone has no filters")
def test_words_are_not_filtered(
    browser_factory: BrowserFactory, mock: MockGateway, open_page: PageOpener
) -> None:
    """The browser takes echo out and evens the gain, but does not suppress noise: that takes parts
    of words along. (Asked of the track, which is what the page got; all three are on otherwise.)"""
    demo = open_page(browser_factory(*chromium.FAKE_DEVICES), mock.url)
    demo.phase("idle")
    demo.page.evaluate(
        """() => {
          const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = async (wanted) => {
            const stream = await open(wanted);
            globalThis.got = stream.getAudioTracks()[0].getSettings();
            return stream;
          };
        }"""
    )
    demo.page.click("#talk")
    demo.phase("listening")
    got = demo.page.evaluate("() => globalThis.got")
    names = ("echoCancellation", "noiseSuppression", "autoGainControl")
    assert [got[name] for name in names] == [True, False, True]


def test_another_sound_is_told_apart(question: Samples, clips: Path) -> None:
    """The measure above fails for speech that says something else."""
    other = np.concatenate([np.zeros(RATE_HZ), read(clips / "followup.wav"), np.zeros(RATE_HZ)])
    assert likeness(other, question).max() < ALIKE / 2


def test_a_browser_that_cannot_run_at_24_khz_is_resampled(
    browser_factory: BrowserFactory,
    mock: MockGateway,
    open_page: PageOpener,
    question: Samples,
    twice: Path,
) -> None:
    """Where the audio graph refuses another rate, as Firefox's does, the worklet converts."""
    browser = browser_factory(*chromium.fake_microphone(twice))
    demo = open_page(browser, mock.url)
    demo.page.evaluate(
        """() => {
          const native = AudioContext;
          globalThis.AudioContext = class extends native {
            createMediaStreamSource(stream) {
              if (this.sampleRate === 24000) throw new DOMException("", "NotSupportedError");
              return super.createMediaStreamSource(stream);
            }
          };
        }"""
    )
    heard = listen(demo, mock, SECOND_S)
    assert set(mock.received.packets) == {PACKET_SAMPLES}
    assert likeness(heard, question).max() > ALIKE
    assert demo.complaints == []
