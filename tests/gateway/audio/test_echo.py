"""What a microphone hears of our own answer, and what it hears of a person."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headstart.gateway.audio.echo import HEARD_MS, LEAST_SHARE, SENT_MS, EchoDetector

Samples = npt.NDArray[np.int16]
RATE_HZ = 24_000
NS_PER_MS = 1_000_000
PACKET_MS = 20


def speech(ms: int, seed: int, level: float = 3_000) -> Samples:
    """Noise with a spectrum and a rhythm like speech's; another one for each seed."""
    random = np.random.default_rng(seed)
    samples = RATE_HZ * ms // 1000
    noise = np.convolve(random.standard_normal(samples), np.ones(12) / 12, "same")
    rhythm = np.abs(
        np.interp(
            np.arange(samples),
            np.arange(0, samples + 2400, 2400),
            random.standard_normal(len(range(0, samples + 2400, 2400))),
        )
    )
    sound = noise * rhythm
    scaled: Samples = (sound / np.sqrt(np.mean(sound**2)) * level).astype(np.int16)
    return scaled


def late(sound: Samples, ms: int, gain: float = 0.1) -> Samples:
    delayed = np.concatenate([np.zeros(RATE_HZ * ms // 1000), sound])[: len(sound)]
    return (delayed * gain).astype(np.int16)


def hears(detector: EchoDetector, sound: Samples, start_ms: int = 0) -> int:
    """In packets, as it comes; returns when that is over, ms."""
    size = RATE_HZ * PACKET_MS // 1000
    for number, at in enumerate(range(0, len(sound), size)):
        now_ms = start_ms + PACKET_MS * (number + 1)
        detector.heard(sound[at : at + size].tobytes(), now_ms * NS_PER_MS)
    return now_ms


@pytest.mark.parametrize("delay_ms", [0, 150, 700, 2_000])
def test_an_echo_is_known(delay_ms: int) -> None:
    """20 dB down, as late as networks and rooms make it."""
    answer, detector = speech(4000, 1), EchoDetector()
    detector.played(answer.tobytes(), 0)
    hears(detector, late(answer, delay_ms))
    share = detector.share(1000)
    assert share is not None
    assert share > 0.9


def test_a_person_is_no_echo() -> None:
    """Alone, and louder than the echo beneath."""
    answer, person = speech(2000, 1), speech(2000, 2)
    for heard in (person, person + late(answer, 150)):
        detector = EchoDetector()
        detector.played(answer.tobytes(), 0)
        hears(detector, heard)
        for ms in (400, 3000):
            share = detector.share(ms)
            assert share is not None
            assert share < LEAST_SHARE


def test_the_newest_sound_decides() -> None:
    """A person who begins over an echo is heard at once; the echo before does not count."""
    answer, detector = speech(2000, 1), EchoDetector()
    detector.played(answer.tobytes(), 0)
    heard = late(answer, 150)
    heard[RATE_HZ * 3 // 2 :] += speech(500, 2)
    hears(detector, heard)
    assert not detector.is_echo(400)


def test_a_pause_of_the_playout_moves_what_follows() -> None:
    """Held in the middle, released later: the rest comes back later, too."""
    answer, detector = speech(2000, 1), EchoDetector()
    detector.played(answer.tobytes(), 0)
    first, rest = answer[:RATE_HZ], answer[RATE_HZ:]
    now_ms = hears(detector, late(first, 100))
    detector.hold(now_ms * NS_PER_MS)
    detector.hold(now_ms * NS_PER_MS)  # no second time
    now_ms = hears(detector, np.zeros(2 * RATE_HZ, np.int16), now_ms)
    detector.release(now_ms * NS_PER_MS)
    hears(detector, late(rest, 100), now_ms)
    assert detector.is_echo(800)


def test_a_client_may_play_on_while_it_is_held() -> None:
    """One that plays by itself knows nothing of the pause."""
    answer, detector = speech(3000, 1), EchoDetector()
    detector.played(answer.tobytes(), 0)
    heard = late(answer, 100)
    now_ms = hears(detector, heard[:RATE_HZ])
    detector.hold(now_ms * NS_PER_MS)
    now_ms = hears(detector, heard[RATE_HZ : 2 * RATE_HZ], now_ms)
    detector.release(now_ms * NS_PER_MS)
    assert detector.is_echo(800)
    hears(detector, heard[2 * RATE_HZ :], now_ms)
    assert detector.is_echo(800)


def test_what_was_dropped_is_not_expected() -> None:
    """An answer that was cut does not come back; the one after it does."""
    answer, other, detector = speech(2000, 1), speech(1000, 3), EchoDetector()
    detector.played(answer.tobytes(), 0)
    now_ms = hears(detector, late(answer, 100)[:RATE_HZ])
    detector.drop()
    hears(detector, late(answer, 100)[RATE_HZ:], now_ms)
    assert not detector.is_echo(400)
    detector.played(other.tobytes(), 3000 * NS_PER_MS)
    hears(detector, late(other, 100), 3000)
    assert detector.is_echo(400)


def test_silence_and_no_answer_say_nothing() -> None:
    """None, not 0."""
    detector = EchoDetector()
    assert detector.share(400) is None
    hears(detector, speech(500, 1))
    assert detector.share(400) is None
    detector.played(speech(500, 1).tobytes(), 500 * NS_PER_MS)
    assert detector.share(400) is None
    hears(detector, np.zeros(RATE_HZ, np.int16), 500)
    assert detector.share(400) is None


def test_memory_is_bounded() -> None:
    """However long the answer, and the microphone; nothing is kept once it is over."""
    detector, second = EchoDetector(), np.zeros(RATE_HZ, np.int16)
    for number in range(120):
        detector.played(second.tobytes(), number * 1000 * NS_PER_MS)
    detector.hold(119_500 * NS_PER_MS)
    detector.release(119_600 * NS_PER_MS)
    for line in detector._lines():
        assert sum(len(samples) for _, samples in line.pieces) <= (SENT_MS + 1000) * 8
    hears(detector, np.zeros(10 * RATE_HZ, np.int16), 110_000)
    assert detector._heard_bytes <= (HEARD_MS + PACKET_MS) * 48
    hears(detector, np.zeros(10 * RATE_HZ, np.int16), 130_000)
    assert not detector._heard
    assert not detector._sent.pieces
