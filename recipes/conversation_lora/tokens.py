"""A dialogue as the engine's tokens, with their loss weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from headstart.engine.api import Tool, ToolCall
from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.gateway.default_prompts import BLIND_NOTE, INSTRUCTIONS
from headstart.recipes.conversation_lora.dialogues import Dialogue, Result

ANSWER_WEIGHT = 1.0
SAID_WEIGHT = 0.1
"""Weight of the user's words and of their end, whose probability the semantic endpoint reads."""


class Prompt(IntEnum):
    """The system prompt that an example follows; OWN is part of the example's tokens."""

    BLIND = 0
    SEES = 1
    OWN = 2


@dataclass(frozen=True, slots=True)
class Example:
    """`ids` follow the system prompt; `weights[i]` is the loss weight of predicting `ids[i]`."""

    prompt: Prompt
    ids: tuple[int, ...]
    weights: tuple[float, ...]


def system_prompt(chat: ChatFormat, *, sees: bool, tools: Sequence[Tool] = ()) -> tuple[int, ...]:
    """The system prompt of a session with the gateway's default prompts."""
    return chat.system(INSTRUCTIONS if sees else f"{INSTRUCTIONS}\n{BLIND_NOTE}", tools)


def system_prompts(chat: ChatFormat) -> list[tuple[int, ...]]:
    """The system prompts, by `Prompt`."""
    return [system_prompt(chat, sees=False), system_prompt(chat, sees=True), ()]


def example(chat: ChatFormat, tokenizer: Tokenizer, dialogue: Dialogue) -> Example:
    """The tokens that `headstart.engine.chat.render.render` gives the same conversation."""
    ids: list[int] = []
    weights: list[float] = []

    def add(tokens: tuple[int, ...] | list[int], weight: float) -> None:
        ids.extend(tokens)
        weights.extend([weight] * len(tokens))

    if dialogue.tools:
        add(system_prompt(chat, sees=dialogue.sees, tools=dialogue.tools), 0.0)
    for turn, follows in zip(dialogue.turns, (*dialogue.turns[1:], None), strict=True):
        add(chat.user_open, 0.0)
        add(tokenizer.encode(f"{turn.note}\n") if turn.note else [], 0.0)
        weight = SAID_WEIGHT
        if isinstance(turn.said, Result):
            add(chat.result(turn.said.output), weight := 0.0)
        else:
            add(tokenizer.encode(turn.said), weight)
        add(chat.user_close[:1], weight)
        add(chat.user_close[1:] + chat.assistant_open, 0.0)
        weight = ANSWER_WEIGHT
        if not isinstance(turn.answer, ToolCall):
            add(tokenizer.encode(turn.answer), weight)
        elif follows is None:
            add(tokenizer.encode(_bare(turn.answer)), weight)
        else:  # laid out with its tags, as context alone
            add(chat.call(turn.answer.name, turn.answer.arguments), weight := 0.0)
        add(chat.assistant_close[:1], weight)
        add(chat.assistant_close[1:], 0.0)
    prompt = Prompt.OWN if dialogue.tools else Prompt(dialogue.sees)
    return Example(prompt, tuple(ids), tuple(weights))


def _bare(call: ToolCall) -> str:
    """How the base calls: it has never learnt the tags, which `engine.chat.tools` does without."""
    return f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
