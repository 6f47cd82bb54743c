"""Tones are told from voices, alike by numpy and compiled, and begin nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.benchmarks.hearing.false_words import listen
from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs import tones as melodies
from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.weights import ensure
from headstart.gateway.audio.native import native_audio
from headstart.gateway.audio.native_vad import CompiledScore, speech_score
from headstart.gateway.audio.segmenter import Detection, SpeechSegmenter, SpeechStarted
from headstart.gateway.audio.tones import (
    HEARD_SAMPLES,
    Samples,
    Tone,
    note_periodic,
    partials_rest,
    tone_in,
)
from headstart.gateway.audio.vad import WINDOW_BYTES, WebRtcScore
from tests.gateway import speech

AT_S = np.arange(HEARD_SAMPLES) / 16_000


def heard(*waves: tuple[float, float]) -> Samples:
    """30 ms of sines (Hz, level in s16 units)."""
    sound = sum(level * np.sin(2 * np.pi * hz * AT_S) for hz, level in waves)
    return np.rint(sound).astype(np.int16)


def beginnings(sound: Samples) -> list[SpeechStarted]:
    events = SpeechSegmenter(Detection()).feed(sound.tobytes(), received_ns=0)
    return [event for event in events if isinstance(event, SpeechStarted)]


@pytest.mark.parametrize("waves", [
    [(425.0, 8000.0)], [(350.0, 4000.0), (440.0, 4000.0)], [(697.0, 4000.0), (1633.0, 4000.0)],
    [(333.0 * k, 6000.0 / k) for k in range(1, 20)],
])  # fmt: skip
def test_a_tone_is_one(waves: list[tuple[float, float]]) -> None:
    """One sine, two of them, a note with all its partials; over a constant offset too."""
    assert tone_in(heard(*waves)) is Tone.YES
    assert tone_in(heard(*waves) + np.int16(9000)) is Tone.YES


def test_noise_and_a_gliding_pitch_are_none() -> None:
    """A voice's pitch moves: by 3 % in 30 ms here."""
    hiss = np.random.default_rng(1).normal(0, 3000, HEARD_SAMPLES).astype(np.int16)
    assert tone_in(hiss) is Tone.NO
    phase = 2 * np.pi * np.cumsum(150 * (1 + AT_S)) / 16_000
    glide = np.rint(sum(3000 / k * np.sin(k * phase) for k in range(1, 30))).astype(np.int16)
    assert tone_in(glide) is Tone.NO


@given(
    seed=st.integers(0, 2**32),
    waves=st.lists(st.tuples(st.floats(60, 7900), st.floats(0, 9000)), max_size=4),
    hiss=st.sampled_from([0, 3, 300, 9000]),
    offset=st.integers(-20_000, 20_000),
)
def test_the_compiled_numbers_are_numpys_to_the_last_bit(
    seed: int, waves: list[tuple[float, float]], hiss: int, offset: int
) -> None:
    """All their sums are of whole numbers."""
    compiled = native_audio()
    assert compiled is not None
    random = np.random.default_rng(seed)
    sound = heard(*waves, (0.0, 0.0)) + offset + random.normal(0, hiss + 1e-9, HEARD_SAMPLES)
    pcm = np.clip(sound, -32768, 32767).astype(np.int16)
    assert compiled.partials_rest(pcm.tobytes()) == partials_rest(pcm)
    assert compiled.note_periodic(pcm.tobytes()) == note_periodic(pcm)


@pytest.mark.parametrize("kind", sorted(melodies.KINDS))
def test_the_compiled_score_hears_tones_as_the_plain_one(kind: str) -> None:
    """Window for window, and a voice behind them."""
    made = noise.make(kind, 3)
    sound = np.concatenate([made, speech.voice(600)])
    pcm = sound[: len(sound) // 320 * 320].tobytes()  # any windows will do
    compiled, plain = speech_score(), WebRtcScore()
    assert isinstance(compiled, CompiledScore)
    assert compiled.judge(pcm) == plain.judge(pcm[: len(pcm) // WINDOW_BYTES * WINDOW_BYTES])


@pytest.mark.parametrize("level", [1.0, 0.1])
@pytest.mark.parametrize("kind", sorted(melodies.KINDS))
def test_a_tone_begins_nothing(kind: str, level: float) -> None:
    """Ten seconds of each, loud and quiet: no utterance."""
    assert beginnings((noise.make(kind, 10) * level).astype(np.int16)) == []


@pytest.mark.parametrize("kind", ["dial tone, America", "keys", "melody of squares"])
def test_a_voice_behind_a_tone_is_heard_from_its_beginning(kind: str) -> None:
    """Half a second after it has ended."""
    clip = load_s16(CLIPS / "capital.wav", 24_000)
    pause = speech.hiss(500)
    tone = noise.make(kind, 2)
    (started,) = beginnings(np.concatenate([tone, pause, clip, speech.hiss(1000)]))
    voice_sample = (len(tone) + len(pause)) * 2 // 3 + 6400  # 0.4 s of room in the clip
    assert started.start_sample <= voice_sample <= started.speech_sample + 3200


@pytest.mark.weights
def test_tones_make_no_turn_and_no_word() -> None:
    """The whole path: packets, listener and recogniser."""
    recognizer: WhisperRecognizer = load_recognizer(ensure("whisper-tiny.en"), "en")
    for kind in melodies.KINDS:
        outcome = listen(recognizer, noise.make(kind, 6))
        assert (outcome.utterances, outcome.turns, outcome.words) == (0, 0, []), kind
