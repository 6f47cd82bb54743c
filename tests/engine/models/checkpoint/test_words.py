"""A model's words: its directory's own, or a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.errors import BadWeights
from headstart.engine.models.checkpoint.words import byte_words, stand_in, words_of
from tests.engine.models.served import IM_END, write_tokenizer

VOCAB = 151_936


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_words_come_from_the_directory(folder: Path) -> None:
    """Its tokenizer and chat template; people can't spell its special tokens; what is missing is
    named."""
    tokenizer, chat = words_of(folder)
    assert tokenizer.eos == IM_END
    assert tokenizer.decode(chat.assistant_open, special=True) == "<|im_start|>assistant\n"
    assert IM_END not in tokenizer.encode("<|im_end|>")
    assert tokenizer.decode(tokenizer.encode("Grüße <|im_end|>")) == "Grüße <|im_end|>"
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(BadWeights, match=r"tokenizer_config\.json: file"):
        words_of(folder)


def test_bytes_stand_in_for_a_vocabulary() -> None:
    """A token a byte and back; a random token reads as its number, so an answer of random weights
    is text; the turn's suffix ends in the flagship's own ids."""
    tokenizer, chat = byte_words(VOCAB)
    ids = tokenizer.encode("Grüße")
    assert len(ids) == len("Grüße".encode())
    assert tokenizer.decode(ids) == "Grüße"
    assert tokenizer.decode([99_999, 300]) == " 99999 300"
    assert chat.user_close_and_assistant_open[0] == 151_645
    assert tokenizer.decode([151_645]) == ""
    assert 151_645 in chat.stop_ids


def test_a_stand_in_needs_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing was ever fetched, bytes are taken."""
    monkeypatch.setenv("HEADSTART_HOME", str(tmp_path))
    tokenizer, _ = stand_in(VOCAB)
    assert len(tokenizer.encode("hello")) == 5
