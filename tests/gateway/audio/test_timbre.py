"""Hums stay where they are, words move: measured on sounds whose formants are known."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.gateway.audio.timbre import FRAMES_MAX, Timbre

RATE_HZ = 16_000
UH, EE, SS = (600, 1200, 2400), (300, 2300, 3000), (4200, 4600, 4900)


def vowel(formants_hz: tuple[int, ...], ms: int, level: float = 8_000) -> bytes:
    """Pulses at 120 Hz through three resonances."""
    samples = RATE_HZ * ms // 1000
    spectrum = np.fft.rfft(np.diff(np.floor(np.arange(samples + 1) * 120 / RATE_HZ)))
    hz = np.fft.rfftfreq(samples, 1 / RATE_HZ)
    gain = sum(1 / (1 + ((hz - f) / 50) ** 2) ** 0.5 for f in formants_hz)
    sound = np.fft.irfft(spectrum * gain, samples)
    scaled: bytes = (sound / np.abs(sound).max() * level).astype(np.int16).tobytes()
    return scaled


def spread(*pieces: bytes) -> float | None:
    timbre = Timbre()
    for piece in pieces:
        timbre.feed(piece)
    return timbre.spread


def test_a_hum_stays_and_a_word_moves() -> None:
    """One vowel, and three sounds one after the other."""
    hum, word = spread(vowel(UH, 300)), spread(vowel(SS, 120), vowel(UH, 120), vowel(EE, 120))
    assert hum is not None
    assert word is not None
    assert hum < 1.0
    assert word > 2.8


def test_level_and_pauses_do_not_count() -> None:
    """The same from further away, with silence around it and a swell within it."""
    silence = bytes(2 * RATE_HZ // 5)
    loud, quiet = vowel(UH, 300), vowel(UH, 300, level=400)
    first, second = spread(silence, loud, silence), spread(silence, quiet, silence)
    assert first == pytest.approx(second, abs=0.3)
    swell = np.frombuffer(loud, np.int16) * np.linspace(0.2, 1, len(loud) // 2)
    assert spread(silence, swell.astype(np.int16).tobytes()) == pytest.approx(first, abs=0.3)


@pytest.mark.parametrize("size", [2, 318, 320, 998, 6_400])
def test_pieces_of_any_size_are_the_same(size: int) -> None:
    """Packets decide nothing."""
    sound = vowel(UH, 200) + vowel(EE, 200)
    pieces = [sound[at : at + size] for at in range(0, len(sound), size)]
    assert spread(*pieces) == pytest.approx(spread(sound))


def test_what_is_no_short_sound_is_not_judged() -> None:
    """Nothing, less than a frame, and more than a hum lasts; memory is bounded."""
    assert spread() is None
    assert spread(bytes(100)) is None
    assert spread(bytes(8_000)) is not None
    timbre = Timbre()
    for _ in range(50):
        timbre.feed(vowel(UH, 200))
    assert timbre.spread is None
    assert len(timbre._cepstra) <= FRAMES_MAX + 1
