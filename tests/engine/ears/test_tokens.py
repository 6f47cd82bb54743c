"""engine.ears.tokens on the packaged vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.ears.tokens import WhisperTokens
from engine.errors import BadWeights


@pytest.mark.weights
def test_opening(whisper_tokens: WhisperTokens) -> None:
    """English-only models take no language; a prompt comes before the start token."""
    special = whisper_tokens.specials
    assert whisper_tokens.opening() == (special.start, special.no_timestamps)
    assert whisper_tokens.opening((1, 2)) == (
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
    special = tokens.specials
    steer = (special.start, special.language, special.transcribe, special.no_timestamps)
    assert tokens.opening() == steer
    assert None not in steer


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
    groups = whisper_tokens.words(tokens)
    assert [whisper_tokens.text(group) for group in groups] == words
    assert tuple(token for group in groups for token in group) == tokens


@pytest.mark.weights
def test_special_tokens_are_not_text(whisper_tokens: WhisperTokens) -> None:
    """Steering tokens never show up in what people read."""
    opening = whisper_tokens.opening()
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


@pytest.mark.weights
def test_refuses_an_unknown_language(whisper_dir: Path) -> None:
    """A language without a token of its own is an error, not English."""
    with pytest.raises(BadWeights, match=r"<\|tlh\|>"):
        WhisperTokens(whisper_dir / "tokenizer.json", multilingual=True, language="tlh")
