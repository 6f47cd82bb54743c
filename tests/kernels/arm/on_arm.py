"""What the kernels' own tests do not ask of 64-bit Arm: which level runs where, and the gateway's
sound. Run by `make test-arm`, with the plugin beside this file.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from headstart.gateway.audio import native as audio
from headstart.gateway.audio.native import NativeAudio
from headstart.gateway.audio.native_vad import CompiledScore
from headstart.gateway.audio.resample import history_samples, slice_matrix
from headstart.gateway.audio.vad import WINDOW_BYTES, WebRtcScore
from headstart.kernels import levels
from tests.gateway.session_bench import clip_pcm
from tests.kernels.arm import guest
from tests.kernels.arm.guest import ArmError, ArmLibrary, Processor
from tests.kernels.compiled import LEVELS

ARM_LEVELS = [level for level in LEVELS if any(level in p.levels for p in guest.PROCESSORS)]
RATES = ((24_000, 16_000), (16_000, 24_000), (8_000, 16_000), (48_000, 16_000), (44_100, 16_000))


@pytest.fixture
def processor(request: pytest.FixtureRequest) -> Processor:
    """Which one qemu plays."""
    name = request.config.getoption("--arm-processor")
    return next(known for known in guest.PROCESSORS if known.name == name)


@pytest.fixture
def arm(processor: Processor) -> ArmLibrary:
    """The highest level that it runs."""
    return guest.library(processor.levels[0], processor)


@pytest.fixture
def on_arm(arm: ArmLibrary, monkeypatch: pytest.MonkeyPatch) -> NativeAudio:
    """The gateway's functions there."""
    with monkeypatch.context() as patched:
        patched.setattr(ctypes, "PyDLL", lambda _: arm)
        return NativeAudio(Path("of the process"))


@pytest.fixture
def here() -> NativeAudio:
    """The same functions, compiled for this machine."""
    return NativeAudio(audio.build())


@pytest.mark.parametrize("level", ARM_LEVELS)
def test_a_level_is_compiled_as_what_it_is_called(level: str, processor: Processor) -> None:
    """By its own word; the portable path calls itself scalar wherever it runs."""
    says = guest.library(level, processor).hs_level
    says.restype = ctypes.c_char_p
    assert says().decode() == ("scalar" if level == guest.SCALAR else level)


def test_the_system_says_what_the_processor_has(arm: ArmLibrary, processor: Processor) -> None:
    """The level chosen from Linux's hardware capabilities is the highest that runs."""
    arm.serve_auxval.restype = ctypes.c_uint64
    features = levels.hwcap_features(arm.serve_auxval)
    chosen = next(level for level in levels.ARM_LEVELS if level.features <= features)
    assert chosen.name == processor.levels[0]


def test_memory_that_is_not_there_ends_the_process(processor: Processor) -> None:
    """A kernel that reads astray fails its test, with the address, rather than hang."""
    doomed = ArmLibrary(processor.levels[0], processor)
    with pytest.raises(ArmError, match="ended with 3"):
        doomed.hs_silu_mul(4096, 4096, 64, 4096, 1)
    doomed.close()


@pytest.mark.parametrize("rates", RATES)
def test_resampling_has_the_same_bits(
    rates: tuple[int, int], on_arm: NativeAudio, here: NativeAudio
) -> None:
    """Loud noise, in packets that end anywhere."""
    matrix, block = slice_matrix(*rates).astype(np.float32), rates[0] // 100
    matrix = np.ascontiguousarray(matrix)
    history = history_samples(rates[0])
    step = matrix.shape[0] - history
    noise = np.random.default_rng(1).integers(-32768, 32768, 9 * block + 13).astype(np.int16)
    pcm = noise.tobytes()
    assert NativeAudio.has_room(block, history, matrix.shape[1])
    streams = [library.blocks(matrix, block, history, step) for library in (on_arm, here)]
    for part in (pcm[:1000], pcm[1000:1500], pcm[1500:]):
        first, second = (stream.feed(part) for stream in streams)
        assert first == second


def test_levels_voicing_and_tones_have_the_same_bits(
    on_arm: NativeAudio, here: NativeAudio
) -> None:
    """Of every 30 ms of a question; all are sums in an order that is written down."""
    pcm = clip_pcm("capital.wav")
    for at in range(0, len(pcm) - 2 * 480, 2 * 480):
        heard, half = pcm[at : at + 2 * 480], pcm[at : at + 2 * 320]
        assert on_arm.mean_square(heard) == here.mean_square(heard)
        assert on_arm.voicing(half, heard[-2 * 320 :]) == here.voicing(half, heard[-2 * 320 :])
        assert on_arm.partials_rest(heard) == pytest.approx(here.partials_rest(heard), abs=1e-12)
        assert on_arm.note_periodic(heard) == here.note_periodic(heard)


class Detector:
    """`serve_detector` of serve.c."""

    def is_speech(self, window: bytes, rate_hz: int) -> bool:
        return bool((np.frombuffer(window, np.int16) > 1000).any())


@pytest.mark.parametrize("noise", [0, 30, 300])
def test_windows_are_judged_alike(
    noise: int, on_arm: NativeAudio, arm: ArmLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question in a room, with a detector that both have: as the plain score in Python."""
    said = np.frombuffer(clip_pcm("capital.wav"), np.int16).astype(np.float64)
    noisy = said + np.random.default_rng(4).normal(0, noise or 1e-9, len(said))
    pcm = np.clip(noisy, -32768, 32767).astype(np.int16).tobytes()
    pcm = pcm[: len(pcm) - len(pcm) % WINDOW_BYTES]
    plain = WebRtcScore(0.5)
    compiled = CompiledScore(plain, on_arm, arm.serve_detector._address)
    monkeypatch.setattr(plain, "vad", Detector())
    assert compiled.judge(pcm) == plain.judge(pcm)
    assert {0, 1} <= set(compiled.judge(pcm))
