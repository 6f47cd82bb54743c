"""How tools read in a chat template: definitions, calls and results as text.

Qwen2.5's and other templates spell calls as `<tool_call>` around a JSON object, and results as
`<tool_response>` in a message by the user. A template that does so gives its own words for the
definitions; any other model is told ours and may or may not follow them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jinja2

from engine.api import Tool
from engine.tool_calls import CLOSE, OPEN

RESULT_OPEN, RESULT_CLOSE = "<tool_response>\n", "\n</tool_response>"
_NAME, _RESULT, _TEXT = "SENTINELname", "SENTINELresult", "SENTINELtext"
_OWN_BEFORE = "\n\nFunctions that you can call, one JSON object in each line:"
_OWN_AFTER = (
    "\n\nTo call one, answer with its name and arguments as a JSON object, and nothing else:\n"
    '<tool_call>\n{"name": <its name>, "arguments": <its arguments>}\n</tool_call>'
)


class Encoder(Protocol):
    """`engine.tokenizer.Tokenizer`."""

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
