"""headstart.engine.asr.tokens on the packaged vocabulary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headstart.engine.asr.errors import EnglishOnly, UnknownLanguage
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.errors import BadWeights
from tests.engine.asr.whisper_dirs import IDS, LANGUAGES, SPECIALS, VOCABULARY, write_tokenizer


@pytest.mark.weights
def test_opening(whisper_tokens: WhisperTokens) -> None:
    """English-only models take no language; a prompt comes before the start token."""
    special = whisper_tokens.specials
    english = whisper_tokens.language("en")
    assert whisper_tokens.opening((), english) == (special.start, special.no_timestamps)
    assert whisper_tokens.opening((1, 2), english) == (
        special.previous,
        1,
        2,
        special.start,
        special.no_timestamps,
    )


@pytest.mark.weights
def test_opening_of_a_multilingual_model(whisper_dir: Path) -> None:
    """Language and task are named where the model knows several."""
    tokens = WhisperTokens(whisper_dir / "tokenizer.json", multilingual=True)
    special, german = tokens.specials, tokens.language("de")
    steer = (special.start, german.token, special.transcribe, special.no_timestamps)
    assert tokens.opening((), german) == steer
    assert None not in steer
    assert len(tokens.languages) == 99


@pytest.mark.weights
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Hello, how's it going?", [" Hello,", " how's", " it", " going?"]),
        (" Extraordinarily naïve.", [" Extraordinarily", " naïve."]),
        (", then", [",", " then"]),
        ("", []),
    ],
)
def test_words(whisper_tokens: WhisperTokens, text: str, words: list[str]) -> None:
    """Words keep the space before and the punctuation behind them, and lose no token."""
    tokens = whisper_tokens.encode(text)
    groups = whisper_tokens.words(tokens, whisper_tokens.language("en"))
    assert [whisper_tokens.text(group) for group in groups] == words
    assert tuple(token for group in groups for token in group) == tokens


@pytest.mark.weights
def test_special_tokens_are_not_text(whisper_tokens: WhisperTokens) -> None:
    """Steering tokens never show up in what people read."""
    opening = whisper_tokens.opening((), whisper_tokens.language("en"))
    assert whisper_tokens.text((*opening, *whisper_tokens.encode(" Hi."))) == " Hi."


@pytest.mark.weights
def test_lower_case(whisper_tokens: WhisperTokens) -> None:
    """Lower-case beginnings are told from capitals, digits and punctuation."""
    lower = set(whisper_tokens.lower_case())
    assert lower >= {whisper_tokens.encode(text)[0] for text in (" the", "the", " you")}
    assert not lower & {whisper_tokens.encode(text)[0] for text in (" The", "A", " 5", ",", " '")}


def test_refuses_what_is_no_tokenizer(tmp_path: Path) -> None:
    """A broken file is named."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(BadWeights, match=r"tokenizer\.json: content: expected a tokenizer"):
        WhisperTokens(path, multilingual=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [("火车早上", ["火", "车", "早", "上"]), ("a b", ["a", " ", "b"])],
)
def test_words_without_spaces(tmp_path: Path, text: str, words: list[str]) -> None:
    """Where a language has no spaces a word is a character, of however many tokens."""
    write_tokenizer(tmp_path / "tokenizer.json")
    tokens = WhisperTokens(tmp_path / "tokenizer.json", multilingual=True)
    groups = tokens.words(tokens.encode(text), tokens.language("zh"))
    assert [tokens.text(group) for group in groups] == words


def test_refuses_a_language_it_does_not_know(tmp_path: Path) -> None:
    """A language without a token of its own is an error, not English, and the known are listed."""
    write_tokenizer(tmp_path / "tokenizer.json")
    tokens = WhisperTokens(tmp_path / "tokenizer.json", multilingual=True)
    with pytest.raises(UnknownLanguage, match=r"know no language 'tlh': .* one of en, de, zh"):
        tokens.language("tlh")
    with pytest.raises(EnglishOnly, match=r"hear English only, not 'de': .* multilingual Whisper"):
        WhisperTokens(tmp_path / "tokenizer.json", multilingual=False).language("de")


def test_refuses_to_go_without_a_token_that_steers(tmp_path: Path) -> None:
    """Each kind of special token that is missing is named."""
    path = tmp_path / "tokenizer.json"
    for missing in ("<|transcribe|>", "<|startofprev|>", "<|notimestamps|>"):
        write_tokenizer(path, tuple(name for name in SPECIALS if name != missing))
        with pytest.raises(BadWeights, match=re.escape(f"expected {missing}, got none")):
            WhisperTokens(path, multilingual=True)
    others = tuple(name for name in SPECIALS if name.strip("<|>") not in LANGUAGES)
    write_tokenizer(path, others)
    with pytest.raises(BadWeights, match="languages such as"):
        WhisperTokens(path, multilingual=True)


def test_refuses_another_models_tokenizer(tmp_path: Path) -> None:
    """Ids that the model has not, or has for something else, are named."""
    write_tokenizer(tmp_path / "tokenizer.json")
    tokens = WhisperTokens(tmp_path / "tokenizer.json", multilingual=True)
    tokens.check(VOCABULARY, IDS)
    with pytest.raises(
        BadWeights, match=f"expected ids below the model's 100, got ids up to {VOCABULARY - 1}"
    ):
        tokens.check(100, {})
    start = "<|startoftranscript|>"
    with pytest.raises(BadWeights, match=f"expected 7, as in the model, got {IDS[start]}"):
        tokens.check(VOCABULARY, {start: 7})
