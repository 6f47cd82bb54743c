"""What begins an utterance by itself: a voice near the microphone, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs.condition_sounds import active_rms
from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import (
    Detection,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
)
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
    coloured = noise.coloured(np.random.default_rng(4), len(sound), exponent)
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
        hiss = noise.coloured(random, 640 * 50, exponent) * 1000
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


@pytest.mark.parametrize("clip", ["capital.wav", "followup.wav", "demo.mp4"])
@pytest.mark.parametrize("start_s", [3, 7, 9])
def test_a_turn_ends_while_others_talk_on(clip: str, start_s: int) -> None:
    """Five people in the room, 20 dB under the one who speaks: one turn, and it ends."""
    said = load_s16(CLIPS / clip, 24_000).astype(np.float64)
    whole = np.concatenate([np.zeros(24_000), said, np.zeros(72_000)])
    talk = load_s16(CLIPS / "monologue.ogg", 24_000).astype(np.float64)
    others = np.sum([np.roll(talk, 24_000 * (start_s + 4 * i)) for i in range(5)], axis=0)
    others = others[: len(whole)]
    whole += others * (active_rms(said) / np.sqrt(np.mean(others**2)) / 10)
    events = SpeechSegmenter(Detection()).feed(whole.astype(np.int16).tobytes(), received_ns=0)
    assert sum(isinstance(event, SpeechStarted) for event in events) == 1
    assert sum(isinstance(event, SpeechStopped) for event in events) == 1


@pytest.mark.parametrize("offset", [-16_000, 16_000])
def test_a_constant_offset_is_no_room(offset: int) -> None:
    """Half of full scale under a voice across a table: one utterance, as without it."""
    sound = spoken(800, QUIET, noise_level=1e-4)
    assert beginnings(np.clip(sound.astype(np.int32) + offset, -32768, 32767).astype(np.int16)) == 1


def six_people(samples: int) -> Samples:
    """The bundled monologue from six places at once: other people's talk, int16[samples]."""
    said = load_s16(CLIPS / "monologue.ogg", 24_000).astype(np.float64)
    places = (round(at * len(said) / 6) for at in range(6))
    together = np.sum([np.resize(np.roll(said, -at), samples) for at in places], axis=0)
    level = np.sqrt(np.mean(together**2))
    return np.asarray(np.rint(together * 3000 / level), np.int16)


@pytest.mark.parametrize("clip", ["capital.wav", "followup.wav"])
@pytest.mark.parametrize("under_db", [20, 10, 5])
def test_a_turn_ends_in_other_peoples_talk(clip: str, under_db: int) -> None:
    """Six people talk on, so far under the speaker, before, while and after a sentence is said: it
    is one turn, from its beginning to at most a second and a half after its end."""
    said = load_s16(CLIPS / clip, 24_000) / 32_768
    loud = np.flatnonzero(np.abs(said) > 0.03)
    sound = np.concatenate([np.zeros(48_000), said, np.zeros(96_000)])
    others = six_people(len(sound)) / 32_768
    others *= active_rms(sound) / 10 ** (under_db / 20) / np.sqrt(np.mean(others**2))
    wire = np.rint(np.clip(sound + others, -1, 1) * 32_767).astype(np.int16).tobytes()
    events = SpeechSegmenter(Detection()).feed(wire, received_ns=0)
    started = [event for event in events if isinstance(event, SpeechStarted)]
    stopped = [event for event in events if isinstance(event, SpeechStopped)]
    assert len(started) == len(stopped) == 1
    first_s, end_s = 2 + loud[0] / 24_000, 2 + loud[-1] / 24_000
    assert started[0].start_sample / 16_000 <= first_s
    assert end_s - 0.05 <= stopped[0].end_sample / 16_000 <= end_s + 1.0
    assert stopped[0].endpoint_sample / 16_000 <= end_s + 1.5


@pytest.mark.parametrize("clip", ["capital.wav", "followup.wav"])
def test_who_speaks_when_the_session_begins_is_heard_from_the_first_sound_on(clip: str) -> None:
    """There is no background to compare with before the first gap in the speech, 700 ms at most:
    all but the first 60 ms."""
    said = load_s16(CLIPS / clip, 24_000)
    loud = np.flatnonzero(np.abs(said.astype(np.int32)) > 1000)[0]
    listener, packet = SpeechSegmenter(Detection()), 480
    for at in range(loud, len(said), packet):
        events = listener.feed(said[at : at + packet].tobytes(), received_ns=0)
        if started := [event for event in events if isinstance(event, SpeechStarted)]:
            break
    assert started[0].start_sample <= 960
    assert (at + packet - loud) / 24_000 <= 0.7
