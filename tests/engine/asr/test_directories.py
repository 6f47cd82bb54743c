"""Any Whisper's directory, streamed, is what `transformers` makes of it at once."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headstart.engine.asr.decoding import GreedyDecoder, Task
from headstart.engine.asr.errors import EnglishOnly
from headstart.engine.asr.mel import LogMel
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import EncodedSound, TextCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from tests.engine.asr.whisper_dirs import LANGUAGES, Kind, write_whisper
from tests.numerics import assert_as_near

KINDS = (
    Kind(multilingual=False),
    Kind(mels=128, sharded=True),
    Kind(tied=False),
    Kind(multilingual=False, mels=128, tied=False, sharded=True),
)
CUTS_S = (0.0, 0.1, 0.7, 0.71, 2.0, 3.0)
FULL_FRAMES = 3000


class Case:
    """One directory, as both have loaded it, and a sound's features that came in pieces."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.kind = kind
        self.directory = directory
        self.reference: Any = write_whisper(directory, kind)
        self.fp64: Any = copy.deepcopy(self.reference).double()
        self.ours: Checkpoint = load_checkpoint(directory, exact=True)
        self.tokens = WhisperTokens(directory / "tokenizer.json", kind.multilingual)
        self.features = streamed_features(kind.mels)


def streamed_features(mels: int) -> Tensor:
    """[mels, 3000] of three seconds of noise, taken in by uneven pieces."""
    sound = np.random.default_rng(0).normal(0, 0.1, 3 * 16_000).astype(np.float32)
    mel = LogMel(mels)
    state = mel.open()
    for start_s, end_s in pairwise(CUTS_S):
        mel.push(state, torch.from_numpy(sound[int(start_s * 16_000) : int(end_s * 16_000)]))
    return mel.features(state, pad_frames=FULL_FRAMES - mel.features(state).shape[1])


@pytest.fixture(scope="module", params=KINDS, ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("whisper"), request.param)


@pytest.fixture(scope="module")
def audio(case: Case) -> Tensor:
    """[1500, D]: encoded in two steps, the first 600 positions frozen by the first."""
    with torch.inference_mode():
        ((whole, frozen),) = case.ours.encoder.encode([EncodedSound(case.features, keep=600)])
        ((end, _),) = case.ours.encoder.encode([EncodedSound(case.features, frozen, keep=600)])
    return torch.cat((whole[:600], end))


def test_the_encoder(case: Case, audio: Tensor) -> None:
    """80 and 128 mel bins, whole and in shards: the reference's rows."""
    with torch.inference_mode():
        theirs = case.reference.model.encoder(case.features[None]).last_hidden_state[0]
        wanted = case.fp64.model.encoder(case.features[None].double()).last_hidden_state[0]
    assert_as_near(audio, theirs, wanted)


def test_the_decoder(case: Case, audio: Tensor) -> None:
    """Tied head and one of its own, tokens run in pieces: the reference's logits."""
    language = case.tokens.language("en")
    given = torch.tensor([*case.tokens.opening((4, 5), language), 20, 30, 257, 40])
    cache, pieces = TextCache(case.ours.settings), []
    with torch.inference_mode():
        sound = case.ours.decoder.listen(audio)
        for rows in torch.split(given, [3, 1, 1, len(given) - 5]):
            hidden, _ = case.ours.decoder(rows, cache, sound)
            pieces.append(case.ours.decoder.vocabulary.logits(hidden))
        theirs, wanted = (
            model(decoder_input_ids=given[None], encoder_outputs=(audio[None].to(model.dtype),))
            for model in (case.reference, case.fp64)
        )
    assert_as_near(torch.cat(pieces), theirs.logits[0], wanted.logits[0])


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_words(case: Case, audio: Tensor, code: str) -> None:
    """In each language the words are those that `generate` gives with that language and task; a
    model that knows English only refuses the others by name."""
    if code != "en" and not case.kind.multilingual:
        with pytest.raises(EnglishOnly):
            case.tokens.language(code)
        return
    opening = case.tokens.opening((), case.tokens.language(code))
    greedy = GreedyDecoder(case.ours.decoder, case.tokens, case.ours.extras)
    named = {"language": code, "task": "transcribe"} if case.kind.multilingual else {}
    with torch.inference_mode():
        sound = case.ours.decoder.listen(audio)
        task = Task(opening, forced=(), draft=(), limit=8, positions=150, capital=False)
        ours = greedy.decode(sound, task).tokens
        theirs = case.reference.generate(case.features[None], max_new_tokens=8, **named)[0].tolist()
    assert ours
    said = theirs[len(opening) :] if theirs[: len(opening)] == list(opening) else theirs
    assert tuple(said[: len(ours)]) == ours


def test_packed_it_hears(case: Case) -> None:
    """As it is served, in int8, it takes in sound and speaks of all of it."""
    recognizer = WhisperRecognizer.load(case.directory)
    utterance = recognizer.open()
    sound = np.random.default_rng(1).normal(0, 0.1, 16_000).astype(np.float32)
    for start in range(0, len(sound), 4_000):
        recognizer.recognize(utterance, sound[start : start + 4_000])
    assert recognizer.finish(utterance).audio_tokens == 50
