"""A model's words: its directory's own, or a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.engine.api import Role
from headstart.engine.chat.render import Entry, Modality, Segment, Separator, render
from headstart.engine.errors import BadWeights
from headstart.engine.models.checkpoint.words import Words, byte_words, stand_in, words_of
from tests.engine.models.served import (
    IM_END,
    MISTRAL_TEMPLATE,
    write_mistral_tokenizer,
    write_tokenizer,
)

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


@pytest.fixture
def mistral(tmp_path: Path) -> Words:
    write_mistral_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    return words_of(tmp_path)


def said(words: Words, system: str, *texts: str, answer_next: bool = True) -> list[int]:
    """A conversation as a session renders it, the user first."""
    tokenizer, chat = words
    entries = [
        Entry(
            str(i),
            Role.ASSISTANT if i % 2 else Role.USER,
            (Segment(Modality.TEXT, tuple(tokenizer.encode(text))),),
        )
        for i, text in enumerate(texts)
    ]
    system_ids = chat.system(system)
    return render(chat, Separator((0,)), system_ids, entries, answer_next=answer_next).ids


def test_one_turn_of_mistral_is_its_templates(mistral: Words) -> None:
    """The system prompt opens the user's message; a full stop before it is one token with the empty
    line behind, as the template's whole text is encoded."""
    tokenizer, chat = mistral
    ids = said(mistral, "Be brief.", "Hi.")
    assert tokenizer.decode(ids, special=True) == "<s>[INST]Be brief.\n\nHi.[/INST]"
    assert ids == tokenizer.encode("<s>[INST]Be brief.\n\nHi.[/INST]", special=True)
    assert 257 in ids
    assert tokenizer.decode(said(mistral, "", "Hi."), special=True) == "<s>[INST]Hi.[/INST]"
    assert chat.stop_ids >= {tokenizer.eos}


def test_mistrals_system_prompt_stays_with_the_first_message(mistral: Words) -> None:
    """Its template moves it to the last one; here each turn is a prefix of the next, so that
    nothing that is cached is computed again."""
    first = said(mistral, "Be brief.", "Hi.", "Hello!", answer_next=False)
    longer = said(mistral, "Be brief.", "Hi.", "Hello!", "Bye.")
    assert longer[: len(first)] == first
    told = mistral.tokenizer.decode(longer, special=True)
    assert told == "<s>[INST]Be brief.\n\nHi.[/INST]Hello!</s>[INST]Bye.[/INST]"


def test_messages_in_a_row_and_an_answer_first(mistral: Words) -> None:
    """User items in a row are one message; a conversation may begin with an answer; instructions in
    mid conversation are a user's message of their own."""
    tokenizer, chat = mistral
    hi = Entry("a", Role.USER, (Segment(Modality.TEXT, (1,)),))
    answer = Entry("b", Role.ASSISTANT, (Segment(Modality.TEXT, (2,)),))
    system = chat.system("X")
    opened = [*system, 1, 9, 1, *chat.user_close]
    assert render(chat, Separator((9,)), system, [hi, hi], answer_next=True).ids == opened
    assert render(chat, Separator((9,)), system, [answer, hi]).ids == [
        *system,
        *chat.user_close,
        2,
        *chat.assistant_close,
        *chat.user_open,
        1,
    ]
    assert tokenizer.decode(chat.later_system("X"), special=True) == "[INST]X[/INST]"


def test_a_template_that_cannot_stay_with_the_first_message(mistral: Words, tmp_path: Path) -> None:
    """A template that ends a message differently in the middle is refused by name."""
    settings = {
        "bos_token": {"content": "<s>"},
        "eos_token": {"content": "</s>"},
        "chat_template": MISTRAL_TEMPLATE.replace(
            '+ "[/INST]"', '+ ("[/INST]" if loop.last else "")'
        ),
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(BadWeights, match="in the middle"):
        words_of(tmp_path)
