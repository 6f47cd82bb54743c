"""engine.asr.recognizer with `whole_s`: one alone is heard as a whole with each chunk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.hypothesis import text_of
from headstart.engine.asr.recognizer import RecognizerSettings, WhisperRecognizer
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.errors import BadSettings

Sound = npt.NDArray[np.float32]
Clip = Callable[[str], Sound]

QUESTION = "What is the capital of France?"
CHUNK = 8000
ANEW = 155  # positions that are encoded with a chunk where the rest is frozen, at most

pytestmark = pytest.mark.weights


def _recognizer(packed: Checkpoint, whisper_dir: Path, share: float) -> WhisperRecognizer:
    settings = RecognizerSettings(whole_s=10.0, whole_share=share)
    return WhisperRecognizer.over(packed, whisper_dir, settings)


@pytest.fixture(scope="module")
def patient(packed: Checkpoint, whisper_dir: Path) -> WhisperRecognizer:
    """However long it takes: tests hang on no clock."""
    return _recognizer(packed, whisper_dir, math.inf)


@pytest.fixture(scope="module")
def question(clip: Clip) -> Sound:
    return clip("capital.wav")


@pytest.fixture(scope="module")
def monologue(clip: Clip) -> Sound:
    return clip("monologue.ogg")


def test_the_last_hypothesis_is_what_the_final_pass_says(
    patient: WhisperRecognizer, question: Sound
) -> None:
    """Of any beginning: so at a hush next to nothing is taken back."""
    for end in range(2 * CHUNK, len(question) + CHUNK, CHUNK):
        utterance = patient.open()
        for start in range(0, min(end, len(question)), CHUNK):
            patient.recognize(utterance, question[start : min(start + CHUNK, end)])
        heard = text_of((*utterance.committed, *utterance.agreement.tentative))
        final = patient.finish(utterance).committed
        assert heard.strip() == final
    assert final == QUESTION


def test_words_show_while_spoken(patient: WhisperRecognizer, question: Sound) -> None:
    utterance = patient.open()
    heard = [
        patient.recognize(utterance, question[start : start + CHUNK])
        for start in range(0, len(question), CHUNK)
    ]
    assert any("What is the capital" in one.text for one in heard[:-1])
    assert heard[-1].committed.startswith("What is the")
    assert all(now.text.startswith(before.text) for before, now in itertools.pairwise(heard))


def test_of_two_at_once_neither_is(
    patient: WhisperRecognizer, question: Sound, monologue: Sound
) -> None:
    """Who takes turns with another costs what he did; the final words are the same."""
    one, two = patient.open(), patient.open()
    encoded = []
    for start in range(0, 10 * CHUNK, CHUNK):
        heard = patient.recognize(one, monologue[start : start + CHUNK])
        encoded.append(heard.encoded_positions)
        if start < len(question):
            patient.recognize(two, question[start : start + CHUNK])
    spoken = -(-len(question) // CHUNK)
    assert max(encoded[:spoken]) <= ANEW
    # Alone again, but for the first chunk behind the other one's last.
    whole = [count > ANEW for count in encoded[spoken + 1 :]]
    assert whole == [True] * len(whole)
    assert patient.finish(two).committed == QUESTION


def test_who_has_no_time_hears_the_rest_as_before(
    packed: Checkpoint, whisper_dir: Path, monologue: Sound
) -> None:
    """The first hearing of the whole takes too long here."""
    hasty = _recognizer(packed, whisper_dir, 0.0)
    utterance = hasty.open()
    encoded = [
        hasty.recognize(utterance, monologue[start : start + CHUNK]).encoded_positions
        for start in range(0, 12 * CHUNK, CHUNK)
    ]
    assert not utterance.in_time
    assert max(encoded) <= ANEW


def test_long_speech_is_heard_as_before_behind_the_limit(
    patient: WhisperRecognizer, monologue: Sound
) -> None:
    """What is committed by then stays; only a part's end begins anew."""
    utterance, committed = patient.open(), ""
    for start in range(0, 30 * CHUNK, CHUNK):
        parted = utterance.recording.start
        heard = patient.recognize(utterance, monologue[start : start + CHUNK])
        seconds = (start + CHUNK - utterance.recording.start.sample) / 16_000
        if seconds > 10.5 and utterance.recording.start == parted:
            assert heard.encoded_positions <= ANEW
            assert heard.committed.startswith(committed)
        committed = heard.committed
    assert len(committed) > 100


def test_what_is_chosen_by_name_hears_the_whole(whisper_dir: Path) -> None:
    """As small a Whisper has the time; a larger one does not."""
    assert load_recognizer(whisper_dir).settings.whole_s == 10.0


def test_the_whole_is_heard_before_the_window_slides() -> None:
    with pytest.raises(BadSettings, match="whole_s must be 0 to less than 12"):
        RecognizerSettings(whole_s=12.0)
