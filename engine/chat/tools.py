"""Function calls in a model's text: definitions for the model, and parsing of its calls.

`ToolFormat`: Qwen2.5's and some other templates write calls as `<tool_call>` around a JSON object,
and results as `<tool_response>` in a user message. Such a template supplies its own wording for the
definitions; other models get ours and may or may not follow it.

`CallReader` splits an answer's text, as it comes, into plain text and function calls:

    Let me look. <tool_call>
    {"name": "weather", "arguments": {"city": "Rome"}}
    </tool_call>

Arguments are passed on as they are decoded. Small models omit the tags: an answer that begins with
such an object is a call too, if there is a function of that name. Anything behind a call other than
a further call ends the answer, because models go on by inventing the function's result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2

from headstart.engine.api import Tool
from headstart.engine.chat.stopping import overlap

OPEN, CLOSE = "<tool_call>", "</tool_call>"
BARE_OPENINGS = ("{", '{"', '{"name', "```", "```json")
"""Beginnings of a call without tags."""
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*(?=\{)')
_BARE = re.compile(r"\s*(```(json)?\s*)?(?=\{)")
_FENCE_BEGUN = re.compile(r"`{1,2}|```j?s?o?n?\s*")
_BARE_HEAD_CHARS = 128  # maximum length of a head; a longer one is text
_BARE_REST = re.compile(r"[}`\s]*")
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of the arguments of call number `call`; `done` with the last piece."""

    call: int
    name: str
    arguments: str
    done: bool


class CallReader:
    """Parses one answer. `names`: the known functions; without any, everything is text."""

    def __init__(self, names: Collection[str]) -> None:
        self.error = ""
        """Why a call cannot be carried out; empty if none is broken."""
        self.ended = False
        """Whether the rest of the answer is ignored."""
        self._names = names
        self._text = ""  # not yet parsed
        self._said = False  # whether there was text other than calls
        self._calls = 0  # complete calls
        self._inside = self._bare = False
        self._name: str | None = None
        self._value = _ObjectEnd()
        self._written = ""  # arguments of the open call so far
        self._passed_on = False  # whether the open call has been passed on completely

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that JSON is being decoded."""
        return self._inside

    def push(self, text: str) -> tuple[str, list[CallPiece]]:
        """The text that may be sent now, and call pieces."""
        if not self._names:
            return text, []
        self._text += text
        said, calls = "", []
        while not self.ended:
            if not self._inside:
                said += self._text_before_call()
                if not self._inside:
                    break
            calls += self._arguments()
            if self._inside:
                break
        return said, calls

    def finish(self) -> tuple[str, list[CallPiece]]:
        """What was held back, when the answer is over. A call without a closing tag counts if its
        arguments are complete."""
        if self._inside and not self._passed_on and not self.error:
            return "", self._parse_whole(self._text)
        said = "" if self._inside or self._calls or self.ended else self._text
        self._text = ""
        return said, []

    def _text_before_call(self) -> str:
        """What may be sent of the text before the next call, which is opened if it begins there."""
        opened, undecided = self._begins_bare()
        if opened or undecided:
            return ""
        text = self._until_tag()
        self._said = self._said or bool(text)
        return text

    def _begins_bare(self) -> tuple[bool, bool]:
        """Whether a call without tags begins here, and whether that is undecided yet."""
        start = self._text.lstrip()
        if self._said or not start:
            return False, False
        opening = _BARE.match(self._text)
        if opening is None:
            return False, _FENCE_BEGUN.fullmatch(start) is not None
        body = self._text[opening.end() :]
        head = _HEAD.match(body)
        if head is None:
            return False, len(body) < _BARE_HEAD_CHARS
        if head[1] not in self._names:
            return False, False
        self._text = body
        self._begin(bare=True)
        return True, False

    def _begin(self, *, bare: bool) -> None:
        self._inside, self._bare, self._passed_on = True, bare, False
        self._name, self._value, self._written = None, _ObjectEnd(), ""

    def _until_tag(self) -> str:
        """The text before the next opening tag, behind which a call is opened."""
        before, opened, rest = self._text.partition(OPEN)
        if not opened:
            held = overlap(before, OPEN)
            before, rest = before[: len(before) - held], before[len(before) - held :]
            kept = len(before.rstrip())  # the space between text and call belongs to neither
            before, rest = before[:kept], before[kept:] + rest
        self._text = rest
        if self._calls and before.strip():
            self.ended = True
            return ""
        if opened:
            self._begin(bare=False)
        return before.rstrip() if opened else before

    def _arguments(self) -> list[CallPiece]:
        """New pieces of the open call's arguments."""
        calls: list[CallPiece] = []
        if self._name is None and not self._passed_on:
            head = _HEAD.match(self._text)
            if head is not None and self._known(head[1]):
                self._name, self._text = head[1], self._text[head.end() :]
        if self._name is not None and not self._passed_on:
            piece, done = self._value.push(self._text)
            self._text = self._text[len(piece) :]
            self._written += piece
            if done and not _is_json(self._written):
                self._fail(f"its arguments are not JSON: {self._written[:_SHOWN_CHARS]!r}")
                return calls
            if piece:
                calls.append(CallPiece(self._calls, self._name, piece, done))
            self._passed_on = done
        if self._bare:
            body, rest = "", _BARE_REST.sub("", self._text, count=1)
            closed = self._passed_on and rest != ""  # more of its closing may come
        else:
            body, mark, rest = self._text.partition(CLOSE)
            closed = bool(mark)
        if closed:
            if not self._passed_on and not self.error:
                calls += self._parse_whole(body)
            self._text, self._inside = rest, False
            self._calls += 1
        return calls

    def _parse_whole(self, body: str) -> list[CallPiece]:
        """Parse a complete call whose keys are not in the usual order."""
        try:
            call = json.loads(body)
            name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            shown = body.strip()[:_SHOWN_CHARS]
            self._fail(f"its call is not a JSON object with a name: {shown!r}")
            return []
        if self._name is not None or not self._known(name):
            self._fail(f"its call of {str(name)[:_SHOWN_CHARS]!r} cannot be parsed")
            return []
        self._passed_on = True
        return [CallPiece(self._calls, name, json.dumps(arguments, ensure_ascii=False), True)]

    def _known(self, name: object) -> bool:
        known = isinstance(name, str) and name in self._names
        if not known:
            self._fail(f"it called {str(name)[:_SHOWN_CHARS]!r}, which does not exist")
        return known

    def _fail(self, why: str) -> None:
        self.error, self.ended = self.error or why, True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply to be read
        return False
    return True


class _ObjectEnd:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def push(self, text: str) -> tuple[str, bool]:
        """The part of `text` that belongs to the object, and whether the object ends there."""
        for at, letter in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = letter == "\\"
                self._in_string = letter != '"'
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return text[: at + 1], True
        return text, False


RESULT_OPEN, RESULT_CLOSE = "<tool_response>\n", "\n</tool_response>"
_NAME, _RESULT, _TEXT = "SENTINELname", "SENTINELresult", "SENTINELtext"
_OWN_BEFORE = "\n\nFunctions that you can call, one JSON object in each line:"
_OWN_AFTER = (
    "\n\nTo call one, answer with its name and arguments as a JSON object, and nothing else:\n"
    '<tool_call>\n{"name": <its name>, "arguments": <its arguments>}\n</tool_call>'
)


class Encoder(Protocol):
    """`headstart.engine.chat.tokenizer.Tokenizer`."""

    def encode(self, text: str, *, special: bool = False) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Texts `before` and `after` the definitions; `native`: taken from the model's own template."""

    before: str = _OWN_BEFORE
    after: str = _OWN_AFTER
    native: bool = False

    def system(self, tokenizer: Encoder, text: str, tools: Sequence[Tool]) -> list[int]:
        """The system prompt with tool definitions. Clients write both, so neither can contain
        control tokens."""
        if not tools:
            return tokenizer.encode(text)
        lines = "".join("\n" + describe(tool) for tool in tools)
        space = len(self.after) - len(self.after.lstrip("\n"))
        plain = text + self.before + lines + self.after[:space]
        return [*tokenizer.encode(plain), *tokenizer.encode(self.after[space:], special=True)]

    def call(self, tokenizer: Encoder, name: str, arguments: str) -> list[int]:
        body = f'\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n'
        ids = [*tokenizer.encode(OPEN, special=True), *tokenizer.encode(body)]
        return [*ids, *tokenizer.encode(CLOSE, special=True)]

    def opening(self, tokenizer: Encoder, tool: Tool | None) -> list[int]:
        """The beginning of a forced call; `tool` None: the model chooses. If the tool has a
        required argument, the name of the first one is part of it."""
        body = '\n{"name":'
        if tool is not None:
            body += f' {json.dumps(tool.name)}, "arguments":'
            schema = json.loads(tool.parameters)
            required = schema.get("required") if isinstance(schema, dict) else None
            if isinstance(required, list) and required and isinstance(required[0], str):
                body += f" {{{json.dumps(required[0])}:"
        return [*tokenizer.encode(OPEN, special=True), *tokenizer.encode(body)]

    def result(self, tokenizer: Encoder, output: str) -> list[int]:
        return tokenizer.encode(f"{RESULT_OPEN}{output}{RESULT_CLOSE}")


def describe(tool: Tool) -> str:
    """A definition as JSON, in the form that templates use."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def tool_format_of(template: jinja2.Template, names: dict[str, str]) -> ToolFormat:
    """The template's own tool format, or ours if it has none or uses another syntax."""
    tool = Tool(_NAME)
    definition = json.loads(describe(tool))
    values: dict[str, Any] = {**names, "add_generation_prompt": False}
    system = {"role": "system", "content": _TEXT}
    call = {"type": "function", "function": {"name": _NAME, "arguments": {"a": 1}}}
    try:
        bare = template.render(values, messages=[system], tools=None)
        told = template.render(values, messages=[system], tools=[definition])
        talk = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": _RESULT},
        ]
        used = template.render(values, messages=[system, *talk], tools=[definition])
    except (jinja2.TemplateError, TypeError):
        return ToolFormat()
    before, _, after = told.partition(describe(tool))
    opening, _, closing = bare.partition(_TEXT)
    spelt = f'{OPEN}\n{{"name": "{_NAME}", "arguments": {{"a": 1}}}}\n{CLOSE}'
    if not (
        before.startswith(opening + _TEXT)
        and before.endswith("\n")
        and after.endswith(closing)
        and spelt in used
        and f"{RESULT_OPEN}{_RESULT}{RESULT_CLOSE}" in used
    ):
        return ToolFormat()
    begin = len(opening + _TEXT)
    return ToolFormat(before[begin:-1], after.removesuffix(closing), native=True)
