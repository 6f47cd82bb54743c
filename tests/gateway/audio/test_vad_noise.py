"""What begins an utterance by itself: a voice near the microphone, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.benchmarks import noise
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import Detection, SpeechSegmenter, SpeechStarted
from headstart.gateway.audio.vad import LEAST_VOICING, NoiseFloor, Samples, numpy_voicing
from tests.gateway import speech

QUIET = 0.1  # of the voice's -24 dBFS: -44, talk across a table


def beginnings(sound: Samples) -> int:
    """Utterances that a listener with default settings finds in s16 24 kHz sound."""
    events = SpeechSegmenter(Detection()).feed(sound.tobytes(), received_ns=0)
    return sum(isinstance(event, SpeechStarted) for event in events)


def spoken(ms: int, level: float = 1.0, noise_level: float = 0.0, exponent: float = 0.0) -> Samples:
    """A second of room, a voice of that length, half a second of room; levels of full scale."""
    room, voice = np.zeros(24_000), speech.voice(ms) * level
    sound = np.concatenate([room, voice, room[:12_000]])
    coloured = noise._coloured(np.random.default_rng(4), len(sound), exponent)
    return np.asarray(sound + coloured * noise_level * 32_768, np.int16)


@pytest.mark.parametrize("kind", sorted(noise.KINDS))
def test_noise_begins_nothing(kind: str) -> None:
    """Ten seconds of each kind of sound in which nobody speaks to us: no utterance."""
    assert beginnings(noise.make(kind, 10)) == 0


@pytest.mark.parametrize("ms", [160, 250, 2000])
@pytest.mark.parametrize("level", [1.0, QUIET])
def test_a_voice_is_heard(ms: int, level: float) -> None:
    """As short as "ok" and as quiet as across a table: one utterance."""
    assert beginnings(spoken(ms, level, noise_level=1e-4)) == 1


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_a_voice_is_heard_over_noise(exponent: float) -> None:
    """Noise 10 dB under the voice, white and pink, takes nothing away."""
    voice = speech.voice(800)
    rms = float(np.sqrt(np.mean((voice / 32_768.0) ** 2)))
    assert beginnings(spoken(800, noise_level=rms * 10 ** (-10 / 20), exponent=exponent)) == 1


def test_voicing_tells_a_vowel_from_noise() -> None:
    """Most of a vowel is above the limit, most of a noise of any colour below it."""
    vowel = StreamResampler(24_000, 16_000).feed(speech.voice(2000))[:31_360].reshape(-1, 640)
    assert np.median([numpy_voicing(cut) for cut in vowel]) > LEAST_VOICING
    random = np.random.default_rng(1)
    for exponent in (0.0, 1.0):
        hiss = noise._coloured(random, 640 * 50, exponent) * 1000
        scores = [numpy_voicing(cut.astype(np.int16)) for cut in hiss.reshape(-1, 640)]
        assert np.median(scores) < LEAST_VOICING


def test_the_room_is_learnt_sooner_when_it_grows_quiet() -> None:
    """It is silent at first; a second of noise is learnt, and 10 dB down faster than up."""
    room = NoiseFloor()
    for _ in range(50):
        room.learn(-50.0)
    before = room.level_dbfs
    assert -60.0 < before < -50.0
    room.learn(before - 10.0)
    fall = before - room.level_dbfs
    before = room.level_dbfs
    room.learn(before + 10.0)
    assert fall > room.level_dbfs - before > 0
