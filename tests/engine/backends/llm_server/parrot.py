"""A scripted LLM server with a real vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.engine.process.llm_server import server_words
from tests.engine.backends.llm_server.scripted_server import VLLM, ScriptedServer


def parrot(gguf: Path, dialect: str = VLLM, **settings: Any) -> ScriptedServer:
    """A server with a real vocabulary that says the words of the last user message again."""
    words = server_words(gguf)
    opening, closing = list(words.chat.user_open), list(words.chat.user_close)
    answer_open = list(words.chat.assistant_open)

    def next_token(tokens: object) -> int:
        read = list(tokens)  # type: ignore[call-overload]
        at = _last(read, answer_open)
        if at is None:
            return closing[0]
        said, asked = read[at + len(answer_open) :], read[:at]
        begin = _last(asked, opening)
        assert begin is not None
        question = asked[begin + len(opening) : len(asked) - len(closing)]
        return question[len(said)] if len(said) < len(question) else closing[0]

    return ScriptedServer(
        next_token,
        stop_ids=frozenset(closing[:1]),
        spell=words.tokenizer.token_bytes,
        parse=words.tokenizer.encode,
        likely=lambda tokens: {closing[0]: 0.75, 7: 0.25},
        dialect=dialect,
        models=("parrot",),
        **settings,
    )


def _last(tokens: list[int], wanted: list[int]) -> int | None:
    starts = range(len(tokens) - len(wanted), -1, -1)
    return next((at for at in starts if tokens[at : at + len(wanted)] == wanted), None)
