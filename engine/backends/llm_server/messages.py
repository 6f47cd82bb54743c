"""Conversations for servers that take chat messages only, or whose tokenizer is not here.

Sessions count, compare and cut tokens. Without the model's own vocabulary, a token is up to five
bytes of text, which is about as much as a model's token holds; the roles' marks are tokens too. So
everything that works on tokens works on these, and `messages_of` turns them back into messages.
Pictures and sounds have tokens above those of text (`media`).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from headstart.engine.api import Tool
from headstart.engine.backends.llm_server.errors import LlmCannot
from headstart.engine.chat.tools import ToolFormat

SYSTEM, USER, ASSISTANT, END = range(4)
Json = dict[str, Any]

_ROLES = {SYSTEM: "system", USER: "user", ASSISTANT: "assistant"}
_BYTES = 5
_MARK = 1 << 8 * _BYTES
"""Above the bytes of a token is a 1, so that leading zeros count."""
ABOVE_TEXT = 1 << 8 * _BYTES + 1
"""Tokens from here on are no text."""
_WORD = re.compile(rb" ?[^ ]+| ")


class TextTokens:
    """`headstart.engine.interfaces.Tokenizer` without a vocabulary. Encoding a text at once or
    word by word gives the same tokens."""

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Tokens of `text`. No text spells a mark, so `special` makes no difference."""
        words = _WORD.findall(text.encode())
        cuts = (word[at : at + _BYTES] for word in words for at in range(0, len(word), _BYTES))
        return [int.from_bytes(b"\1" + cut) for cut in cuts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens` without marks; invalid UTF-8 becomes U+FFFD."""
        return b"".join(map(_spelled, tokens)).decode("utf-8", errors="replace")

    def stream_decoder(self) -> _TextDecoder:
        return _TextDecoder()


class _TextDecoder:
    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        return self._utf8.decode(_spelled(token))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


def _spelled(token: int) -> bytes:
    """The bytes of a token; none for a mark, or a part that is no text."""
    if token <= END or token >= ABOVE_TEXT:
        return b""
    return token.to_bytes(_BYTES + 1).lstrip(b"\0")[1:]


class MessageMarks:
    """`headstart.engine.chat.render.Chat` in `TextTokens`: a mark opens a message, another closes
    it. Tools are described in our own words, since the server's template is not known."""

    user_open: Sequence[int] = (USER,)
    user_close: Sequence[int] = (END,)
    assistant_open: Sequence[int] = (ASSISTANT,)
    assistant_close: Sequence[int] = (END,)
    call_beginnings: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset({END})
    system_opens_user = False

    def __init__(self) -> None:
        self._tokens = TextTokens()
        self._tools = ToolFormat()

    def system(self, text: str, tools: Sequence[Tool] = ()) -> Sequence[int]:
        return (SYSTEM, *self._tools.system(self._tokens, text, tools), END)

    later_system = system

    def call(self, name: str, arguments: str) -> Sequence[int]:
        return tuple(self._tools.call(self._tokens, name, arguments))

    def call_opening(self, tool: Tool | None = None) -> Sequence[int]:
        """Raises `LlmCannot`: messages cannot begin the assistant's turn."""
        raise LlmCannot("a forced function call", "it takes whole chat messages only")

    def result(self, output: str) -> Sequence[int]:
        return tuple(self._tools.result(self._tokens, output))


def messages_of(
    tokens: Sequence[int], part_of: Callable[[int], Json | None] | None = None
) -> list[Json]:
    """The chat messages that `tokens` stand for; empty ones are left out. `part_of`: the part of a
    message that a token above all text stands for; None for one that stands for nothing."""
    messages: list[Json] = []
    begin: int | None = None
    for at, token in enumerate((*tokens, END)):
        if token > END:
            continue
        if begin is not None:
            content = _content(tokens[begin + 1 : at], part_of)
            if content:
                messages.append({"role": _ROLES[tokens[begin]], "content": content})
        begin = at if token != END else None
    return messages


def _content(
    tokens: Sequence[int], part_of: Callable[[int], Json | None] | None
) -> str | list[Json]:
    """A message's content: text, or a list of parts if there is more than that."""
    text = TextTokens()
    if part_of is None or all(token < ABOVE_TEXT for token in tokens):
        return text.decode(tokens)
    parts: list[Json] = []
    for is_text, run in groupby(tokens, lambda token: token < ABOVE_TEXT):
        if is_text:
            parts.append({"type": "text", "text": text.decode(run)})
        else:
            parts += [part for part in map(part_of, run) if part is not None]
    return parts
