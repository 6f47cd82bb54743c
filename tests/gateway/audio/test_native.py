import subprocess
from pathlib import Path

import numpy as np
import pytest

from headstart.gateway.audio import native as module
from headstart.gateway.audio.native import CompiledBlocks, NativeAudio, build, native_audio
from headstart.gateway.audio.resample import (
    NumpyBlocks,
    StreamResampler,
    blocks_of,
    history_samples,
    slice_matrix,
    slice_rows,
)
from headstart.gateway.audio.vad import WINDOW_SAMPLES, energy_dbfs, numpy_voicing


@pytest.fixture
def compiled() -> NativeAudio:
    found = native_audio()
    assert found is not None, "the tests need a C compiler"
    return found


@pytest.mark.parametrize(
    "rates",
    [
        (24_000, 16_000),  # two outputs of many slices together
        (16_000, 24_000),  # two and one
        (8_000, 16_000),
        (48_000, 16_000),
        (12_000, 16_000),
        (44_100, 16_000),  # few slices
    ],
)
@pytest.mark.usefixtures("compiled")
def test_resampling_is_the_matrix_product(rates: tuple[int, int]) -> None:
    """Within a rounding of numpy's float64 for whatever rates, loud samples clipped."""
    rng = np.random.default_rng(1)
    blocks = blocks_of(*rates)
    assert isinstance(blocks, CompiledBlocks)
    rng = np.random.default_rng(1)
    sound = rng.integers(-32768, 32768, 7 * rates[0] // 100 + 13).astype(np.int16)
    line = np.concatenate((np.zeros(history_samples(rates[0])), sound.astype(np.float64)))
    matrix, rows = slice_matrix(*rates).astype(np.float64), slice_rows(*rates)
    exact = [np.dot(line[i * rates[0] // 100 :][rows], matrix) for i in range(7)]
    expected = np.clip(np.rint(np.concatenate(exact).ravel()), -32768, 32767)
    pcm = sound.tobytes()
    got = np.frombuffer(blocks.feed(pcm[:1000]) + blocks.feed(pcm[1000:]), np.int16)
    assert len(got) == 7 * rates[1] // 100
    assert blocks.held_samples == 13
    assert np.abs(got - expected).max() <= 1
    assert np.mean(got != expected) < 0.01  # halves, rounded from float32 sums


def test_levels_and_voicing_are_numpys(compiled: NativeAudio) -> None:
    """On noise, a vowel, silence and full scale."""
    rng = np.random.default_rng(2)
    at = np.arange(2 * WINDOW_SAMPLES)
    vowel = 8000 * np.sign(np.sin(2 * np.pi * 120 / 16_000 * at)) + rng.normal(0, 300, len(at))
    for sound in (rng.normal(0, 3000, len(at)), vowel, 0 * at, np.full(len(at), -32768)):
        window = sound.astype(np.int16)
        pcm = window.tobytes()
        half = 2 * WINDOW_SAMPLES
        assert compiled.voicing(pcm[:half], pcm[half:]) == pytest.approx(
            numpy_voicing(window), abs=1e-3
        )
        mean_square = np.var(window.astype(np.float64))
        assert compiled.mean_square(pcm) == pytest.approx(mean_square)


@pytest.mark.usefixtures("compiled")
def test_rates_beyond_its_room_are_numpys() -> None:
    """96 kHz is converted all the same."""
    assert isinstance(blocks_of(96_000, 16_000), NumpyBlocks)
    assert len(StreamResampler(96_000, 16_000).feed(bytes(2 * 9600))) == 1600


def test_without_a_compiler_numpy_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same sound within a rounding, and one warning that says what it costs."""
    sound = np.random.default_rng(3).integers(-9000, 9000, 24_000).astype(np.int16)
    expected = StreamResampler(24_000, 16_000).feed(sound)
    level = energy_dbfs(sound[:WINDOW_SAMPLES].tobytes())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native_audio.cache_clear()
    try:
        assert native_audio() is None
        assert "no C compiler found" in caplog.text
        got = StreamResampler(24_000, 16_000).feed(sound)
        assert np.abs(got - expected).max() <= 1
        assert energy_dbfs(sound[:WINDOW_SAMPLES].tobytes()) == pytest.approx(level, abs=1e-4)
    finally:
        monkeypatch.undo()
        native_audio.cache_clear()


def test_without_a_home_numpy_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a user id without a name in a container; the warning says what to set."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    native_audio.cache_clear()
    try:
        assert native_audio() is None
        assert "set XDG_CACHE_HOME" in caplog.text
    finally:
        monkeypatch.undo()
        native_audio.cache_clear()


def test_a_source_that_does_not_compile_is_no_end_of_the_world(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`build` raises, `native_audio` goes on without, and no half file is left."""
    source = tmp_path / "front.c"
    source.write_text("this is not C\n")
    monkeypatch.setattr(module, "SOURCE", source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(subprocess.CalledProcessError):
        build()
    assert list((tmp_path / "headstart" / "gateway").iterdir()) == []
