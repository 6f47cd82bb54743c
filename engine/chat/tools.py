"""Function calls in a model's text: how tools are told to it, and how its calls are read.

`ToolFormat`: Qwen2.5's and other templates spell calls as `<tool_call>` around a JSON object, and
results as `<tool_response>` in a message by the user. A template that does so gives its own words
for the definitions; any other model is told ours and may or may not follow them.

`CallReader` takes an answer's text apart, as it comes, into what is said and which functions are
called:

    Let me look. <tool_call>
    {"name": "weather", "arguments": {"city": "Rome"}}
    </tool_call>

Arguments are passed on as they are decoded. Small models leave the tags out: an answer that begins
with such an object is a call, too, if there is a function of that name. What comes behind a call
and is no further call ends the answer: models go on by inventing the function's result.

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
"""How a call without tags begins."""
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*(?=\{)')
_BARE = re.compile(r"\s*(```(json)?\s*)?(?=\{)")
_FENCE_BEGUN = re.compile(r"`{1,2}|```j?s?o?n?\s*")
_BARE_HEAD_CHARS = 128  # a head is no longer than this; what is, is text
_BARE_REST = re.compile(r"[}`\s]*")


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of the arguments of call number `call`; with the last one it is `done`."""

    call: int
    name: str
    arguments: str
    done: bool


class CallReader:
    """`names`: the functions there are; without any, everything is text."""

    def __init__(self, names: Collection[str]) -> None:
        self.broken = ""
        """Why what the model calls cannot be carried out."""
        self.over = False
        """No more of this answer counts."""
        self._names = names
        self._text = ""  # not yet told apart
        self._said = False  # something that is no call
        self._calls = 0  # begun and done
        self._inside = self._bare = False
        self._name: str | None = None
        self._value = _ObjectEnd()
        self._written = ""  # of the open call's arguments
        self._given = False  # all of the open call has been passed on

    @property
    def inside(self) -> bool:
        """In the middle of a call: what is decoded is JSON."""
        return self._inside

    def push(self, text: str) -> tuple[str, list[CallPiece]]:
        """What can be said now, and what is called."""
        if not self._names:
            return text, []
        self._text += text
        said, calls = "", []
        while not self.over:
            if self._inside:
                calls += self._arguments()
                if self.inside or self.broken:
                    break
                continue
            opened, undecided = self._begins_bare()
            if undecided:
                break
            if not opened:
                piece, opened = self._outside()
                said += piece
                self._said = self._said or bool(piece)
            if not opened:
                break
        return said, calls

    def finish(self) -> tuple[str, list[CallPiece]]:
        """What was held back, when the answer is over. A call that was never closed counts if all
        of its arguments are there."""
        if self._inside and not self._given and not self.broken:
            return "", self._whole(self._text)
        said = "" if self._inside or self._calls or self.over else self._text
        self._text = ""
        return said, []

    def _begins_bare(self) -> tuple[bool, bool]:
        """Whether a call without tags begins here, and whether that cannot be known yet."""
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
        self._inside, self._bare, self._given = True, bare, False
        self._name, self._value, self._written = None, _ObjectEnd(), ""

    def _outside(self) -> tuple[str, bool]:
        """Text before the next call, and whether that call has begun."""
        before, opened, rest = self._text.partition(OPEN)
        if not opened:
            held = overlap(before, OPEN)
            before, rest = before[: len(before) - held], before[len(before) - held :]
            kept = len(before.rstrip())  # the space between text and call belongs to neither
            before, rest = before[:kept], before[kept:] + rest
        self._text = rest
        if self._calls and before.strip():
            self.over = True
            return "", False
        if opened:
            self._begin(bare=False)
        return before.rstrip() if opened else before, bool(opened)

    def _arguments(self) -> list[CallPiece]:
        """What is known of the open call's arguments."""
        calls: list[CallPiece] = []
        if self._name is None and not self._given:
            head = _HEAD.match(self._text)
            if head is not None and self._known(head[1]):
                self._name, self._text = head[1], self._text[head.end() :]
        if self._name is not None and not self._given:
            piece, done = self._value.push(self._text)
            self._text = self._text[len(piece) :]
            self._written += piece
            if done and not _is_json(self._written):
                self._break(f"its arguments are no JSON: {self._written[:200]!r}")
                return calls
            if piece:
                calls.append(CallPiece(self._calls, self._name, piece, done))
            self._given = done
        if self._bare:
            body, rest = "", _BARE_REST.sub("", self._text, count=1)
            closed = self._given and rest != ""  # more of its end may come
        else:
            body, mark, rest = self._text.partition(CLOSE)
            closed = bool(mark)
        if closed:
            if not self._given and not self.broken:
                calls += self._whole(body)
            self._text, self._inside = rest, False
            self._calls += 1
        return calls

    def _whole(self, body: str) -> list[CallPiece]:
        """A call that is not written in the usual order."""
        try:
            call = json.loads(body)
            name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        except (ValueError, TypeError, KeyError, AttributeError):
            self._break(f"what it called is no JSON object with a name: {body.strip()[:200]!r}")
            return []
        if self._name is not None or not self._known(name):
            self._break(f"it called {name!r} in a way that cannot be read")
            return []
        self._given = True
        return [CallPiece(self._calls, name, json.dumps(arguments, ensure_ascii=False), True)]

    def _known(self, name: str) -> bool:
        if name not in self._names:
            self._break(f"it called {name!r}, and there is no such function")
        return name in self._names

    def _break(self, why: str) -> None:
        self.broken, self.over = self.broken or why, True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class _ObjectEnd:
    """Finds the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def push(self, text: str) -> tuple[str, bool]:
        """As much of `text` as belongs to the object, and whether it ends there."""
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
    """`before` the definitions and `after` them; `native`: the model's own template says so."""

    before: str = _OWN_BEFORE
    after: str = _OWN_AFTER
    native: bool = False

    def system(self, tokenizer: Encoder, text: str, tools: Sequence[Tool]) -> list[int]:
        """The system prompt's text and what may be called. Clients write both the text and the
        definitions, so no control token can be spelt there."""
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
        """The beginning of a call that the model must go on with; `tool` None: it chooses. Of one
        that takes an argument in any case, the first such argument's name is a part of it."""
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
    """A definition as templates have it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def tool_format_of(template: jinja2.Template, names: dict[str, str]) -> ToolFormat:
    """What the template says of tools; ours, where it says nothing or spells them another way."""
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
