"""See `test_vits.test_both_voices_are_voices`; here: what is the fallback's own."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.gateway.tts import espeak
from headstart.gateway.tts.synthesiser import ToWire, VoiceUnavailable


def test_without_its_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named, with the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "espeakng_loader", None)
    with pytest.raises(VoiceUnavailable, match=r"headstart\[voice\]"):
        espeak.Espeak()


def test_the_wires_rate_is_reached_exactly() -> None:
    """22,050 Hz to 24,000 Hz in pieces: the right length, the same sine."""
    sine = (8_000 * np.sin(2 * np.pi * 440 * np.arange(22_050) / 22_050)).astype(np.int16)
    wire = ToWire(22_050)
    out = np.concatenate(
        [*(wire.feed(sine[at : at + 4096]) for at in range(0, 22_050, 4096)), wire.flush()]
    )
    assert abs(len(out) - 24_000) <= 1
    spectrum = np.abs(np.fft.rfft(out[4800:19200].astype(float) * np.hanning(14_400)))
    assert abs(np.argmax(spectrum) * 24_000 / 14_400 - 440) < 2
