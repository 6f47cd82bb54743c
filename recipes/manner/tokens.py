"""A dialogue as the engine's tokens, and which of them are to be learnt."""

from __future__ import annotations

from dataclasses import dataclass

from engine.chat import ChatFormat
from engine.tokenizer import Tokenizer
from gateway.manner import BLIND_NOTE, INSTRUCTIONS
from recipes.manner.dialogues import Dialogue

ANSWER_WEIGHT = 1.0
SAID_WEIGHT = 0.1
"""Of the user's words and of their end: the semantic endpoint reads that probability."""


@dataclass(frozen=True, slots=True)
class Example:
    """`ids` follow the system prompt that `sees` names; `weights[i]` is that of predicting
    `ids[i]` from what stands before it."""

    sees: bool
    ids: tuple[int, ...]
    weights: tuple[float, ...]


def system_prompt(chat: ChatFormat, *, sees: bool) -> tuple[int, ...]:
    """What a session with the gateway's own manner begins with."""
    return chat.system(INSTRUCTIONS if sees else f"{INSTRUCTIONS}\n{BLIND_NOTE}")


def example(chat: ChatFormat, tokenizer: Tokenizer, dialogue: Dialogue) -> Example:
    """As `engine.layout.render` lays out the same conversation."""
    ids: list[int] = []
    weights: list[float] = []

    def add(tokens: tuple[int, ...] | list[int], weight: float) -> None:
        ids.extend(tokens)
        weights.extend([weight] * len(tokens))

    for turn in dialogue.turns:
        add(chat.user_open, 0.0)
        add(tokenizer.encode(f"{turn.note}\n") if turn.note else [], 0.0)
        add(tokenizer.encode(turn.said), SAID_WEIGHT)
        add(chat.user_close[:1], SAID_WEIGHT)
        add(chat.user_close[1:] + chat.assistant_open, 0.0)
        add(tokenizer.encode(turn.answer), ANSWER_WEIGHT)
        add(chat.assistant_close[:1], ANSWER_WEIGHT)
        add(chat.assistant_close[1:], 0.0)
    return Example(dialogue.sees, tuple(ids), tuple(weights))
