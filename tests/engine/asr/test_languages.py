"""headstart.engine.asr.languages: what differs between languages, and telling them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.engine.asr.languages import AUTO, Language, LanguageDetector
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.runaway import token_limit
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache, TextCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from tests.engine.asr.whisper_dirs import LANGUAGES, write_whisper


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whisper")
    write_whisper(made)
    return made


@pytest.fixture(scope="module")
def checkpoint(directory: Path) -> Checkpoint:
    return load_checkpoint(directory, exact=True)


@pytest.fixture(scope="module")
def tokens(directory: Path) -> WhisperTokens:
    return WhisperTokens(directory / "tokenizer.json", multilingual=True)


def _sounds(checkpoint: Checkpoint) -> list[CrossCache]:
    random = torch.Generator().manual_seed(6)
    with torch.inference_mode():
        rows = [torch.randn(50, 64, generator=random) * 3 for _ in range(8)]
        return [checkpoint.decoder.listen(one) for one in rows]


def test_what_differs() -> None:
    """Spaces, and how many tokens a second of speech may have."""
    english, hindi, thai = Language("en"), Language("hi", 5), Language("th", 6)
    assert english.is_english
    assert not hindi.is_english
    assert (english.has_spaces, hindi.has_spaces, thai.has_spaces) == (True, True, False)
    assert token_limit(10, hindi.rate) > 4 * token_limit(10, english.rate)


def test_the_likeliest_language_is_found(checkpoint: Checkpoint, tokens: WhisperTokens) -> None:
    """Of each sound, among language tokens only, the one that the decoder puts first."""
    detector = LanguageDetector(checkpoint.decoder, tokens.specials.start, tokens.languages)
    sounds = _sounds(checkpoint)
    with torch.inference_mode():
        found = detector.detect(sounds)
        for (language, probability), sound in zip(found, sounds, strict=True):
            hidden, _ = checkpoint.decoder(
                torch.tensor([tokens.specials.start]), TextCache(checkpoint.settings), sound
            )
            logits = checkpoint.decoder.vocabulary.logits(hidden)[0]
            best = max(tokens.languages, key=lambda one: float(logits[one.token]))
            assert language == best
            known = logits[[one.token for one in tokens.languages]].softmax(-1)
            assert probability == pytest.approx(float(known.max()), abs=1e-4)
    assert len({language.code for language, _ in found}) > 1


def test_auto_settles_on_a_language(checkpoint: Checkpoint, tokens: WhisperTokens) -> None:
    """Each utterance gets the language that it sounds like, while no word of it is sure."""
    recognizer = WhisperRecognizer(checkpoint, tokens, language=AUTO)
    utterance = recognizer.open()
    noise = np.random.default_rng(3).normal(0, 0.1, 16_000).astype(np.float32)
    recognizer.recognize(utterance, noise)
    assert utterance.language in tokens.languages
    assert utterance.language.code in LANGUAGES


def test_auto_shows_no_word_before_the_language_is_sure(
    checkpoint: Checkpoint, tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before a second of sound, nor while it is in doubt; then it gives way only to one that is
    as sure. After four seconds the likeliest one is taken."""
    german, chinese = (one for one in tokens.languages if one.code in ("de", "zh"))
    answers = [(chinese, 0.99), (chinese, 0.6), (german, 0.9), (chinese, 0.7), (chinese, 0.85)]
    recognizer = WhisperRecognizer(checkpoint, tokens, language=AUTO)
    assert recognizer._detector is not None
    script = iter(answers)
    monkeypatch.setattr(recognizer._detector, "detect", lambda sounds: [next(script)])
    utterance, states = recognizer.open(), []
    noise = np.random.default_rng(3).normal(0, 0.1, 40_000).astype(np.float32)
    for at in range(0, len(noise), 8_000):
        heard = recognizer.recognize(utterance, noise[at : at + 8_000])
        states.append((utterance.language.code, utterance.language_sure))
        assert utterance.language_sure or not heard.text
    assert states == [("zh", False), ("zh", False), ("de", True), ("de", True), ("zh", True)]
    doubtful = recognizer.open()
    monkeypatch.setattr(recognizer._detector, "detect", lambda sounds: [(chinese, 0.3)])
    for _ in range(4):
        assert not doubtful.language_sure
        recognizer.recognize(doubtful, noise[:16_000])
    assert (doubtful.language, doubtful.language_sure) == (chinese, True)


@pytest.mark.weights
def test_auto_is_english_where_nothing_else_is_known(
    whisper_dir: Path, clip: Callable[[str], npt.NDArray[np.float32]]
) -> None:
    """An English-only Whisper is not asked, and hears as ever."""
    recognizer = WhisperRecognizer.load(whisper_dir, language=AUTO)
    utterance = recognizer.open()
    assert (
        recognizer.finish(utterance, clip("capital.wav")).text == "What is the capital of France?"
    )
