"""Streaming resampling: packet sizes do not matter, counts are exact, sines stay sines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.gateway.audio.resample import StreamResampler, UnsupportedRateError

Samples = npt.NDArray[np.int16]
PAIRS = [(24_000, 16_000), (48_000, 16_000), (8_000, 16_000), (44_100, 16_000), (16_000, 24_000)]


def noise(count: int, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).integers(-9000, 9000, count).astype(np.int16)


def sine(hz: float, rate: int, seconds: float, peak: float = 10_000.0) -> Samples:
    t = np.arange(int(rate * seconds)) / rate
    return np.rint(peak * np.sin(2 * np.pi * hz * t)).astype(np.int16)


def in_packets(resampler: StreamResampler, samples: Samples, sizes: list[int]) -> Samples:
    """Feed in packets of the given sizes, again and again, then flush."""
    out, at, i = [], 0, 0
    while at < len(samples):
        out.append(resampler.feed(samples[at : at + sizes[i % len(sizes)]]))
        at += sizes[i % len(sizes)]
        i += 1
    return np.concatenate([*out, resampler.flush()])


def level_db(samples: npt.NDArray[np.float64]) -> float:
    return float(10 * np.log10(np.mean(samples**2) + 1e-9))


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
@pytest.mark.parametrize("size", [1, 7, 160, 511, 512, 513, 4800])
def test_packet_size_does_not_matter(in_rate: int, out_rate: int, size: int) -> None:
    """Packets of any size give the very samples one packet gives."""
    samples = noise(in_rate // 4 + 17)
    whole = in_packets(StreamResampler(in_rate, out_rate), samples, [len(samples)])
    assert np.array_equal(in_packets(StreamResampler(in_rate, out_rate), samples, [size]), whole)


@settings(max_examples=40, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=12),
    aligned=st.booleans(),
)
def test_random_cuts_do_not_matter(pair: tuple[int, int], sizes: list[int], aligned: bool) -> None:
    """Nor do packets of ever-changing sizes."""
    samples = noise(3000)
    whole = in_packets(StreamResampler(*pair, aligned=aligned), samples, [len(samples)])
    cut = in_packets(StreamResampler(*pair, aligned=aligned), samples, sizes)
    assert np.array_equal(cut, whole)


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_live_output_never_lags_by_a_block(in_rate: int, out_rate: int) -> None:
    """After n whole blocks of 10 ms exactly n blocks have come out, over half a minute."""
    resampler = StreamResampler(in_rate, out_rate)
    second = noise(in_rate)
    made = 0
    for elapsed_s in range(1, 31):
        made += len(resampler.feed(second))
        assert made == elapsed_s * out_rate
        assert resampler.pending_samples == 0


@settings(max_examples=60, deadline=None)
@given(pair=st.sampled_from(PAIRS), count=st.integers(0, 5000), aligned=st.booleans())
def test_flush_makes_the_count_exact(pair: tuple[int, int], count: int, aligned: bool) -> None:
    """In all, ceil(in * out_rate / in_rate) samples; and the next stream starts afresh."""
    resampler = StreamResampler(*pair, aligned=aligned)
    samples = noise(count)
    first = in_packets(resampler, samples, [479])
    assert len(first) == -(-count * pair[1] // pair[0])
    assert np.array_equal(in_packets(resampler, samples, [479]), first)


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
@pytest.mark.parametrize("hz", [100.0, 440.0, 1000.0, 3000.0])
def test_sines_keep_pitch_level_and_place(in_rate: int, out_rate: int, hz: float) -> None:
    """A sine comes out as that sine at the new rate, sample for sample, within 0.1 % of it."""
    out = in_packets(StreamResampler(in_rate, out_rate, aligned=True), sine(hz, in_rate, 1), [480])
    expected = sine(hz, out_rate, 1)
    middle = slice(out_rate // 10, -out_rate // 10)
    error = out[middle].astype(float) - expected[middle]
    assert np.abs(error).max() <= 10.0


@pytest.mark.parametrize("in_rate", [24_000, 48_000])
@pytest.mark.parametrize("hz", [8_100.0, 9_000.0, 11_000.0])
def test_what_the_new_rate_cannot_hold_is_gone(in_rate: int, hz: float) -> None:
    """Above 8 kHz nothing folds back into 16 kHz audio: at least 60 dB down."""
    samples = sine(hz, in_rate, 0.5)
    out = StreamResampler(in_rate, 16_000).feed(samples)[1000:]
    assert level_db(samples.astype(float)) - level_db(out.astype(float)) >= 60.0


def test_live_output_is_two_milliseconds_late() -> None:
    """An impulse at sample 0 peaks 2 ms into the live output, and at 0 when aligned."""
    click = np.zeros(2400, np.int16)
    click[0] = 30_000
    assert int(np.argmax(StreamResampler(24_000, 16_000).feed(click))) == 32
    assert int(np.argmax(StreamResampler(24_000, 16_000, aligned=True).feed(click))) == 0


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_speech_band_matches_soxr(in_rate: int, out_rate: int) -> None:
    """On noise below 3.4 kHz, ours and soxr's best differ by less than -60 dB."""
    spectrum = np.fft.rfft(noise(in_rate).astype(float))
    spectrum[3_400:] = 0
    samples = np.rint(np.fft.irfft(spectrum)).astype(np.int16)
    ours = in_packets(StreamResampler(in_rate, out_rate, aligned=True), samples, [480])
    theirs = soxr.resample(samples.astype(np.float64), in_rate, out_rate, quality="VHQ")
    middle = slice(out_rate // 10, -out_rate // 10)
    difference = ours[middle].astype(float) - theirs[middle]
    assert level_db(theirs[middle]) - level_db(difference) >= 60.0


def test_full_scale_clips_and_does_not_wrap() -> None:
    """A full-scale square wave overshoots into the rails, never round to the other sign."""
    square = np.where(np.arange(4800) // 60 % 2, 32767, -32768).astype(np.int16)
    out = StreamResampler(24_000, 16_000, aligned=True).feed(square)
    plateau = out[(np.arange(len(out)) % 40 > 10) & (np.arange(len(out)) % 40 < 30)]
    assert np.abs(plateau.astype(int)).min() > 25_000
    assert out.max() == 32767
    assert out.min() == -32768


def test_same_rate_passes_through() -> None:
    """Equal rates change nothing but the cut into blocks."""
    samples = noise(1234)
    assert np.array_equal(in_packets(StreamResampler(16_000, 16_000), samples, [77]), samples)


def test_bad_input_is_named() -> None:
    """Odd rates and half samples are refused with what came."""
    with pytest.raises(UnsupportedRateError, match="11025"):
        StreamResampler(11_025, 16_000)
    with pytest.raises(UnsupportedRateError, match="0"):
        StreamResampler(0, 16_000)
    with pytest.raises(ValueError, match="got 3"):
        StreamResampler(24_000, 16_000).feed(b"abc")
