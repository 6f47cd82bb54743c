"""A file's sound as 24 kHz mono."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from headstart.gateway.errors import MediaError
from headstart.talk.media.audio import Heard, Mix, Wave, pieces, to_pcm
from headstart.talk.media.container import opened
from headstart.talk.media.playback import probe
from tests.headstart.talk.media_files import write_audio
from tests.headstart.talk.odd_files import sine, write_floats


def heard(path: Path) -> tuple[Heard, Wave]:
    """All of a file, in mono."""
    result, waves = Heard(), []
    with opened(path) as container:
        for wave in pieces(container, container.streams.audio[0], result):
            result.weigh(wave)
            waves.append(wave)
    return result, np.concatenate([result.mix.apply(wave) for wave in waves])


def level(wave: Wave) -> float:
    """RMS of the middle."""
    middle = wave[len(wave) // 4 : -len(wave) // 4].astype(np.float64)
    return float(np.sqrt((middle**2).mean()))


TONE = sine(1.0, 48_000)
OTHER = sine(1.0, 48_000, 1000.0)
RMS = 0.25 / np.sqrt(2)


@pytest.mark.parametrize(
    ("channels", "mix", "rms"),
    [
        ([TONE, TONE], Mix.MEAN, RMS),
        ([TONE, 0 * TONE], Mix.MEAN, RMS / 2),
        ([TONE, OTHER], Mix.MEAN, RMS / np.sqrt(2)),
        ([TONE, -TONE], Mix.LEFT, RMS),
        ([-0.9 * TONE, TONE], Mix.RIGHT, RMS),
        ([TONE], Mix.MEAN, RMS),
        ([0 * TONE, 0 * TONE], Mix.MEAN, 0.0),
    ],
    ids=["same", "one", "two", "inverted", "inverted, quieter", "mono", "silent"],
)
def test_two_channels_become_one_that_is_heard(
    channels: list[Wave], mix: Mix, rms: float, tmp_path: Path
) -> None:
    """The mean, unless the two cancel: then the louder of them."""
    path = write_floats(tmp_path / "a.wav", np.stack(channels), 48_000, "pcm_f32le")
    result, wave = heard(path)
    assert result.mix is mix
    assert level(wave) == pytest.approx(rms, rel=0.02, abs=1e-4)


@pytest.mark.parametrize("codec", ["pcm_f32le", "pcm_f64le"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_samples_that_are_no_numbers_hurt_nobody(codec: str, value: float, tmp_path: Path) -> None:
    """They are silence, or clipped; what stands beside them is as it was."""
    kind = np.float32 if codec == "pcm_f32le" else np.float64
    samples = np.array(TONE[None], kind)
    samples[0, 1000:1010] = value
    result, wave = heard(write_floats(tmp_path / "a.wav", samples, 48_000, codec))
    assert result.broken_samples == (0 if np.isfinite(value) else 10)
    assert np.isfinite(wave).all()
    assert level(wave[1000:]) == pytest.approx(RMS, rel=0.02)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 22_050, 32_000, 44_100, 96_000, 192_000])
def test_any_rate_becomes_ours(rate_hz: int, tmp_path: Path) -> None:
    """As long as it was, and as high."""
    samples = sine(1.0, rate_hz)[None]
    result, wave = heard(write_floats(tmp_path / "a.wav", samples, rate_hz, "pcm_f32le"))
    assert result.samples == pytest.approx(24_000, abs=24)
    spectrum = np.abs(np.fft.rfft(wave[6000:18000]))
    assert np.argmax(spectrum) * 2 == pytest.approx(440, abs=2)
    assert level(wave) == pytest.approx(RMS, rel=0.02)


@pytest.mark.parametrize("rate_hz", [0, 1, 999, 1_000_000, 0x7FFFFFFF])
def test_rates_that_no_sound_has_are_damage(rate_hz: int, tmp_path: Path) -> None:
    """A WAV header that says 1 Hz does not become hours of sound."""
    path = write_floats(tmp_path / "a.wav", TONE[None], 48_000, "pcm_f32le")
    data = bytearray(path.read_bytes())
    data[24:28] = struct.pack("<I", rate_hz)
    path.write_bytes(data)
    with pytest.raises(MediaError, match=r"samples a second|is no sound|does not decode"):
        probe(path)


@pytest.mark.parametrize("channels", [3, 6, 7, 16])
def test_channels_without_places_count_alike(channels: int, tmp_path: Path) -> None:
    """Recorders write as many as they have inputs."""
    samples = np.repeat(TONE[None], channels, axis=0)
    result, wave = heard(write_floats(tmp_path / "a.wav", samples, 48_000, "pcm_f32le"))
    assert result.samples == pytest.approx(24_000, abs=24)
    assert level(wave) > RMS / 4


def test_our_own_format_passes_unchanged(tmp_path: Path) -> None:
    """24 kHz mono of 16 bits: bit for bit."""
    samples = np.random.default_rng(1).integers(-32768, 32768, (1, 24_000)).astype(np.int16)
    _, wave = heard(write_floats(tmp_path / "a.wav", samples, 24_000, "pcm_s16le"))
    assert to_pcm(wave) == samples.tobytes()


def test_what_is_too_loud_is_clipped() -> None:
    """And does not come round on the other side."""
    loud = np.array([2.0, -2.0, 1.0, -1.0], np.float32)
    assert np.frombuffer(to_pcm(loud), np.int16).tolist() == [32767, -32768, 32767, -32768]


def test_the_first_timestamp_is_known(tmp_path: Path) -> None:
    """Of what is heard, not of what a codec needs to begin."""
    result, _ = heard(write_audio(tmp_path / "a.mp4", "aac", 44_100))
    assert result.start_s == pytest.approx(0.0, abs=0.001)
