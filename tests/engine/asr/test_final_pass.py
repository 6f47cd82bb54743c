"""headstart.engine.asr.final_pass: a whole sound, heard at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.benchmarks.inputs.recordings import CLIPS, load_f32
from headstart.benchmarks.inputs.spoken import in_a_room
from headstart.benchmarks.inputs.voices import Line, Say, cast
from headstart.benchmarks.references.offline import Offline, normaliser
from headstart.engine.asr.decoding import Decoded
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.stage_clock import StageClock
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.tts.synthesiser import RATE_HZ

pytestmark = pytest.mark.weights

Sound = npt.NDArray[np.float32]


def _hear(recognizer: WhisperRecognizer, sound: Sound, draft: tuple[int, ...] = ()) -> Decoded:
    with torch.inference_mode():
        return recognizer._final.recognize(sound, recognizer._language, (), draft, StageClock())[0]


def test_it_says_what_the_same_whisper_says_offline(
    whisper_dir: Path, recognizer: WhisperRecognizer
) -> None:
    """On the bundled clips, words for words, those that speak without pause for 20 s too."""
    offline, spell = Offline(whisper_dir, "en"), normaliser("en")
    for name in ("capital.wav", "followup.wav", "monologue.ogg"):
        sound = load_f32(CLIPS / name, 16_000)[: 28 * 16_000]
        said = recognizer._tokens.text(_hear(recognizer, sound).tokens)
        assert spell(said) == spell(offline.transcribe(sound))


def test_a_good_draft_is_one_pass(
    recognizer: WhisperRecognizer, clip: Callable[[str], Sound]
) -> None:
    """What was heard already costs one pass of the decoder, and the words are the same."""
    sound = clip("capital.wav")
    plain = _hear(recognizer, sound)
    drafted = _hear(recognizer, sound, plain.tokens)
    assert (drafted.tokens, drafted.logprobs) == (plain.tokens, plain.logprobs)
    assert (plain.passes, drafted.passes) == (len(plain.tokens) + 1, 1)


def test_behind_text_like_its_own_a_sound_is_heard(
    recognizer: WhisperRecognizer, clip: Callable[[str], Sound]
) -> None:
    """Where the decoder falls silent behind what was said before, it is asked without it."""
    once = clip("monologue.ogg")
    twice = np.concatenate((once[:-5600], once[5600:]))
    said = (
        " In the first spring, my sister planted tomatoes, beans and a row of yellow flowers along"
        " the wall. The birds came back, and every morning we had breakfast on the wooden bench."
    )
    sound = twice[int(16.1 * 16_000) : int(36.4 * 16_000)]
    prompt = recognizer._tokens.encode(said)
    with torch.inference_mode():
        language = recognizer._language
        decoded, _ = recognizer._final.recognize(sound, language, prompt, (), StageClock())
    text = recognizer._tokens.text(decoded.tokens)
    assert "more apples than we can eat" in text
    assert text.endswith("on the wooden bench.")


REPEATED = (
    "No, no, no.",
    "No, no, no, no.",
    "Stop, stop, stop!",
    "Stop, stop, stop, please stop.",
    "Yes, yes, yes, I know.",
    "It is very, very, very good.",
    "My number is 555 0142, I repeat, 555 0142.",
    "Never, never, never give up.",
)


@pytest.fixture(scope="module")
def joe() -> Say:
    ((_, say),) = cast(("joe",))
    return say


@pytest.mark.parametrize("text", REPEATED)
def test_who_repeats_is_written_as_they_spoke(
    recognizer: WhisperRecognizer, joe: Say, text: str
) -> None:
    """Neither are words said again taken for a loop, nor do numbers gain digits."""
    spell, resampler = normaliser("en"), StreamResampler(RATE_HZ, 16_000)
    pcm = resampler.feed_pcm(in_a_room(joe(Line(text))).tobytes()) + resampler.flush_pcm()
    sound = np.frombuffer(pcm, "<i2").astype(np.float32) * np.float32(2**-15)
    utterance = recognizer.open()
    for start in range(0, len(sound), 8000):
        recognizer.recognize(utterance, sound[start : start + 8000])
    heard = re.sub("[^a-z0-9 ]", "", spell(recognizer.finish(utterance).text))
    assert heard.replace(" ", "") == re.sub("[^a-z0-9]", "", spell(text))


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.3, 25.0, 27.99, 28.0])
def test_sounds_of_any_length_fit(recognizer: WhisperRecognizer, seconds: float) -> None:
    """From some samples to the longest, the encoder's 30 s are enough."""
    random = np.random.default_rng(0)
    sound = (random.standard_normal(int(seconds * 16_000)) * 1e-3).astype(np.float32)
    decoded = _hear(recognizer, sound)
    assert recognizer._final.is_silence(decoded) or not decoded.tokens
