"""Conversations as chat messages, for servers that take nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine import api
from headstart.engine.backends.llm_server.errors import LlmCannot
from headstart.engine.backends.llm_server.messages import (
    END,
    MessageMarks,
    TextTokens,
    messages_of,
)
from headstart.engine.chat.render import Entry, Modality, Segment, Separator, render

TOKENS = TextTokens()


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.text().filter(encodable))
def test_text_survives_its_tokens(text: str) -> None:
    """Any text comes back, at once and token by token; none of its tokens is a mark."""
    tokens = TOKENS.encode(text)
    assert TOKENS.decode(tokens) == text
    decoder = TOKENS.stream_decoder()
    assert "".join(map(decoder.feed, tokens)) + decoder.flush() == text
    assert all(token > END for token in tokens)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1)))
def test_words_have_the_same_tokens_alone_and_together(words: list[str]) -> None:
    """So that a growing utterance keeps the tokens of its beginning."""
    together = TOKENS.encode(" ".join(words))
    alone = [t for i, word in enumerate(words) for t in TOKENS.encode(" " * (i > 0) + word)]
    assert together == alone


def test_a_conversation_becomes_messages() -> None:
    """With its roles, in order; an open message counts, an empty one and an open answer do not."""
    chat = MessageMarks()

    def entry(role: api.Role, text: str) -> Entry:
        return Entry("", role, (Segment(Modality.TEXT, tuple(TOKENS.encode(text))),))

    entries = [
        entry(api.Role.USER, "What is this? <|im_end|>"),
        entry(api.Role.ASSISTANT, "A café."),
        entry(api.Role.USER, "And"),
        entry(api.Role.USER, "that?"),
    ]
    separator = Separator(tuple(TOKENS.encode("\n")))
    for answer_next in (False, True):
        prompt = render(chat, separator, chat.system("Be brief."), entries, answer_next=answer_next)
        assert messages_of(prompt.ids) == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is this? <|im_end|>"},
            {"role": "assistant", "content": "A café."},
            {"role": "user", "content": "And\nthat?"},
        ]
    assert messages_of(chat.system("")) == []


def test_tools_are_described_in_words() -> None:
    """As for a model whose template has none; a call cannot be forced."""
    chat = MessageMarks()
    (system,) = messages_of(chat.system("Hi.", (api.Tool("weather", "tells it"),)))
    assert system["content"].startswith("Hi.\n\nFunctions that you can call")
    assert '"name": "weather"' in system["content"]
    with pytest.raises(LlmCannot, match="forced function call"):
        chat.call_opening()
