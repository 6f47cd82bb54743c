"""The compiled score is the plain one, window for window."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.gateway.audio import native_vad
from headstart.gateway.audio.native import native_audio
from headstart.gateway.audio.native_vad import CompiledScore, speech_score
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.vad import WINDOW_BYTES, WINDOW_SAMPLES, Samples, WebRtcScore
from tests.gateway import speech
from tests.gateway.session_bench import clip_pcm

PARTS = st.one_of(
    st.builds(speech.voice, st.integers(20, 600)),
    st.builds(speech.hiss, st.integers(20, 600), level=st.sampled_from([0, 3, 30, 200, 3000])),
    st.builds(
        lambda ms, gain: (speech.voice(ms) * gain).astype(np.int16),
        st.integers(20, 400),
        st.floats(0.0, 1.0),
    ),
    st.builds(lambda ms: np.full(24 * ms, -32768, np.int16), st.integers(20, 100)),
)


def heard(*parts: Samples) -> bytes:
    """The parts' whole windows at 16 kHz."""
    pcm = StreamResampler(24_000, 16_000).feed_pcm(speech.join(*parts))
    return pcm[: len(pcm) - len(pcm) % WINDOW_BYTES]


def both(threshold: float, pcm: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """What the plain and the compiled score say, in packets of so many windows."""
    plain, compiled = WebRtcScore(threshold), speech_score(threshold)
    assert isinstance(compiled, CompiledScore)
    said, at, i = [b"", b""], 0, 0
    while at < len(pcm):
        packet = pcm[at : at + cuts[i % len(cuts)] * WINDOW_BYTES]
        said[0] += plain.judge(packet)
        said[1] += compiled.judge(packet)
        at, i = at + len(packet), i + 1
    return said[0], said[1]


@settings(max_examples=60, deadline=None)
@given(
    threshold=st.floats(0.0, 1.0),
    parts=st.lists(PARTS, min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_it_judges_as_the_plain_one(
    threshold: float, parts: list[Samples], cuts: list[int]
) -> None:
    """Voices, hisses, silence and full scale of any level and order, packets of any size."""
    plain, compiled = both(threshold, heard(*parts), cuts)
    assert compiled == plain


@pytest.mark.parametrize("noise", [0, 30, 300])
@pytest.mark.parametrize("clip", ["capital.wav", "followup.wav"])
def test_people_are_heard_alike(clip: str, noise: int) -> None:
    """The bundled clips in rooms of three levels; there is speech and silence in each."""
    said = np.frombuffer(clip_pcm(clip), np.int16)
    sound = np.concatenate((np.zeros(24_000, np.int16), said, np.zeros(48_000, np.int16)))
    noisy = sound + np.random.default_rng(4).normal(0, noise or 1e-9, len(sound))
    pcm = heard(np.clip(noisy, -32768, 32767).astype(np.int16))
    plain, compiled = both(0.5, pcm, [2])
    assert compiled == plain
    assert {0, 1} <= set(plain)


def test_its_numbers_have_their_places_in_c() -> None:
    """An offset that went wrong would be silence: sizes and the last field's place are checked by
    a window that has to be there the next time."""
    score = speech_score()
    assert isinstance(score, CompiledScore)
    window = np.arange(WINDOW_SAMPLES, dtype=np.int16).tobytes()
    score.judge(window)
    assert bytes(score._score.last) == window


def test_without_webrtcs_functions_the_plain_score_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And one line says what it costs."""

    def hidden(name: str) -> object:
        raise AttributeError("WebRtcVad_Process is hidden")

    assert native_audio() is not None
    monkeypatch.setattr(ctypes, "PyDLL", hidden)
    native_vad._process.cache_clear()
    try:
        assert isinstance(speech_score(), WebRtcScore)
        assert "WebRtcVad_Process is hidden" in caplog.text
    finally:
        monkeypatch.undo()
        native_vad._process.cache_clear()


def test_a_threshold_outside_its_range_is_refused() -> None:
    """As by the plain score."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        speech_score(1.5)
