"""A chat template split into pieces, from which a conversation is built incrementally.

A template renders a whole conversation at once, but the opening of a user's message is needed long
before its words are known. So the template is rendered a few times with sentinels in place of the
texts; the strings between sentinels are the pieces. Once, the joined pieces are checked to equal
the template's own rendering.

    system(text)   user_open  ...  user_close assistant_open  ...  assistant_close   user_open ...

Mistral's templates have no system message: they put its text into the *last* user message, which
would change with every turn, and with it all that is cached. Here it opens the first one, and stays
there; of one turn, that is the template's own rendering.

    system(text)   ...  user_close assistant_open  ...  assistant_close   user_open ...
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headstart.engine.api import Tool
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.chat.tools import BARE_OPENINGS, OPEN, ToolFormat, tool_format_of
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights

_SYSTEM, _USER, _ASSISTANT, _USER_2 = "SENTINELsys", "SENTINELone", "SENTINELtwo", "SENTINELtri"


@dataclass(frozen=True, slots=True)
class ChatPieces:
    """The template's own strings. `system_opens_user`: `system_open` also opens a user message,
    which the first user's text continues."""

    system_open: str
    system_close: str
    user_open: str
    user_close: str
    assistant_open: str
    assistant_close: str
    system_opens_user: bool = False


class ChatFormat:
    """Token ids of the template's pieces. Texts go between them, encoded without `special`.

    `user_close_and_assistant_open` is the turn suffix: all tokens between the user's last word and
    the answer's first. `stop_ids` end an answer: the end-of-sequence token and every other control
    token, since no control token is part of an answer's text.
    """

    def __init__(
        self, pieces: ChatPieces, tokenizer: Tokenizer, tools: ToolFormat | None = None
    ) -> None:
        self.pieces = pieces
        self.tools = tools if tools is not None else ToolFormat()
        self._tokenizer = tokenizer
        self._system_open = _own(tokenizer, pieces.system_open)
        self._system_close = _own(tokenizer, pieces.system_close)
        self.system_opens_user = pieces.system_opens_user
        self.user_open = _own(tokenizer, pieces.user_open)
        self.user_close = _own(tokenizer, pieces.user_close)
        self.assistant_open = _own(tokenizer, pieces.assistant_open)
        self.assistant_close = _own(tokenizer, pieces.assistant_close)
        self.user_close_and_assistant_open = self.user_close + self.assistant_open
        self.stop_ids = tokenizer.control_ids | {tokenizer.eos}

    @classmethod
    def from_gguf(cls, file: GgufFile, tokenizer: Tokenizer) -> ChatFormat:
        """Raises `BadWeights` for a missing template or one that cannot be split."""
        source = file.require("tokenizer.chat_template", str)
        bos = file.get("tokenizer.ggml.bos_token_id", int, tokenizer.eos)
        return cls.from_template(source, tokenizer, file.path, bos)

    @classmethod
    def from_template(
        cls, source: str, tokenizer: Tokenizer, path: Path, bos: int | None = None
    ) -> ChatFormat:
        """From the Jinja template `source` of the file `path`. Raises `BadWeights` for one that
        cannot be split."""
        names = {
            "bos_token": "" if bos is None else tokenizer.decode([bos], special=True),
            "eos_token": tokenizer.decode([tokenizer.eos], special=True),
        }
        try:
            template = _environment().from_string(source)
            pieces = _take_apart(template, names)
            texts = ("Be brief.", "Hi.", "Hello!", "Bye.")
            whole = _render(template, names, _conversation(*texts))
            if pieces.system_opens_user:
                whole = _rendered_with_system_first(template, names, pieces, texts)
        except jinja2.TemplateError as error:
            raise BadWeights(path, "chat template", "one that renders", str(error)) from error
        except ValueError as error:
            raise BadWeights(
                path, "chat template", "texts set between fixed strings", str(error)
            ) from error
        chat = cls(pieces, tokenizer, tool_format_of(template, names))
        first = chat.user("Hi.")[len(chat.user_open) if chat.system_opens_user else 0 :]
        joined = [
            *chat.system("Be brief."),
            *first,
            *chat.assistant("Hello!"),
            *chat.user_open,
            *tokenizer.encode("Bye."),
            *chat.user_close_and_assistant_open,
        ]
        if joined != tokenizer.encode(whole, special=True):
            got = tokenizer.decode(joined, special=True)
            raise BadWeights(path, "chat template", repr(whole), repr(got))
        return chat

    def system(self, text: str, tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """The system message that begins a conversation, with the definitions of `tools`."""
        said = self.tools.system(self._tokenizer, text, tools)
        if not self.system_opens_user:
            return (*self._system_open, *said, *self._system_close)
        if not text and not tools:
            return self._system_open
        if not tools:  # a template's plain letters behind a text may share a token with it
            said = self._tokenizer.encode(text + self.pieces.system_close)
            return (*self._system_open, *said)
        return (*self._system_open, *said, *self._system_close)

    def later_system(self, text: str, tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """A system message inside of a conversation; a user's of its own if there are no others."""
        if not self.system_opens_user:
            return self.system(text, tools)
        said = self.tools.system(self._tokenizer, text, tools)
        return (*self.user_open, *said, *self.user_close)

    @property
    def call_beginnings(self) -> frozenset[int]:
        """First tokens of an answer that is a call, with or without tags."""
        encode = self._tokenizer.encode
        return frozenset(encode(text, special=True)[0] for text in (OPEN, *BARE_OPENINGS))

    def call(self, name: str, arguments: str) -> tuple[int, ...]:
        """A function call, as part of an assistant's message."""
        return tuple(self.tools.call(self._tokenizer, name, arguments))

    def call_opening(self, tool: Tool | None = None) -> tuple[int, ...]:
        """The beginning of a forced call; `tool` None: the model chooses the function."""
        return tuple(self.tools.opening(self._tokenizer, tool))

    def result(self, output: str) -> tuple[int, ...]:
        """The output of a function, as part of a user's message."""
        return tuple(self.tools.result(self._tokenizer, output))

    def user(self, text: str) -> tuple[int, ...]:
        """A complete user message."""
        return (*self.user_open, *self._tokenizer.encode(text), *self.user_close)

    def assistant(self, text: str) -> tuple[int, ...]:
        """A complete assistant message."""
        return (*self.assistant_open, *self._tokenizer.encode(text), *self.assistant_close)


def _own(tokenizer: Tokenizer, piece: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(piece, special=True))


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _plain_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _environment() -> ImmutableSandboxedEnvironment:
    """A sandbox, since templates come from untrusted files: only plain data is accessible."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    # jinja2's own filter escapes for HTML; models were trained on plain JSON.
    environment.filters["tojson"] = _plain_json
    return environment


def _conversation(*texts: str) -> list[dict[str, str]]:
    roles = ("system", "user", "assistant", "user")
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def _render(
    template: jinja2.Template,
    names: dict[str, str],
    messages: list[dict[str, str]],
    add_generation_prompt: bool = True,
) -> str:
    values: dict[str, Any] = {
        **names,
        "messages": messages,
        "add_generation_prompt": add_generation_prompt,
        "tools": None,
    }
    return template.render(values)


def _take_apart(template: jinja2.Template, names: dict[str, str]) -> ChatPieces:
    """Split a template. Raises `ValueError` if a text is not rendered exactly once."""
    if _system_opens_user(template, names):
        return _take_apart_without_system(template, names)
    whole = _render(template, names, _conversation(_SYSTEM, _USER, _ASSISTANT, _USER_2))
    system_open, rest = _cut(whole, _SYSTEM)
    system_close_user_open, rest = _cut(rest, _USER)
    user_close_assistant_open, rest = _cut(rest, _ASSISTANT)
    assistant_close_user_open, turn_suffix = _cut(rest, _USER_2)
    open_turn = _render(template, names, _conversation(_SYSTEM, _USER), False)
    _, user_close = _cut(open_turn, _USER)
    lone_system = _render(template, names, _conversation(_SYSTEM), False)
    _, system_close = _cut(lone_system, _SYSTEM)
    user_open = system_close_user_open.removeprefix(system_close)
    if user_close_assistant_open != turn_suffix:
        raise ValueError(f"{user_close_assistant_open!r} in the middle, {turn_suffix!r} at the end")
    return ChatPieces(
        system_open=system_open,
        system_close=system_close,
        user_open=user_open,
        user_close=user_close,
        assistant_open=turn_suffix.removeprefix(user_close),
        assistant_close=_without_end(assistant_close_user_open, user_open),
    )


def _system_opens_user(template: jinja2.Template, names: dict[str, str]) -> bool:
    """Whether a system message's text is rendered into the last user message."""
    whole = _render(template, names, _conversation(_SYSTEM, _USER, _ASSISTANT, _USER_2))
    return -1 < whole.find(_ASSISTANT) < whole.find(_SYSTEM)


def _take_apart_without_system(template: jinja2.Template, names: dict[str, str]) -> ChatPieces:
    """Split a template whose user messages take the system message's text."""
    talk = _conversation(_SYSTEM, _USER, _ASSISTANT, _USER_2)[1:]
    first_open, rest = _cut(_render(template, names, talk), _USER)
    user_close_assistant_open, rest = _cut(rest, _ASSISTANT)
    assistant_close_user_open, turn_suffix = _cut(rest, _USER_2)
    _, user_close = _cut(_render(template, names, talk[:1], False), _USER)
    user_open = first_open.removeprefix(names["bos_token"])
    turn = _render(template, names, _conversation(_SYSTEM, _USER))
    system_open, rest = _cut(turn, _SYSTEM)
    system_close, suffix = _cut(rest, _USER)
    if not user_close_assistant_open == turn_suffix == suffix:
        raise ValueError(f"{user_close_assistant_open!r} in the middle, {turn_suffix!r} at the end")
    return ChatPieces(
        system_open=system_open,
        system_close=system_close,
        user_open=user_open,
        user_close=user_close,
        assistant_open=turn_suffix.removeprefix(user_close),
        assistant_close=_without_end(assistant_close_user_open, user_open),
        system_opens_user=True,
    )


def _rendered_with_system_first(
    template: jinja2.Template, names: dict[str, str], pieces: ChatPieces, texts: Sequence[str]
) -> str:
    """The template's rendering of one turn with a system message, and of what follows it."""
    system, *talk = _conversation(*texts)
    turn = _render(template, names, [system, talk[0]])
    plain = _render(template, names, talk)
    before = _render(template, names, talk[:1])
    if not plain.startswith(before):
        raise ValueError(f"{before!r} first, {plain!r} later")
    return turn + plain.removeprefix(before)


def _without_end(assistant_close_user_open: str, user_open: str) -> str:
    if not assistant_close_user_open.endswith(user_open):
        raise ValueError(f"{user_open!r} first, {assistant_close_user_open!r} later")
    return assistant_close_user_open.removesuffix(user_open)


def _cut(text: str, sentinel: str) -> tuple[str, str]:
    if text.count(sentinel) != 1:
        raise ValueError(f"a text came out {text.count(sentinel)} times")
    before, _, after = text.partition(sentinel)
    return before, after
