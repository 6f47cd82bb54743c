"""What an LLM server can do, as found out at start (`probe`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PromptForm(StrEnum):
    """How a prompt is sent."""

    IDS = "token ids"
    TEXT = "text"
    MESSAGES = "chat messages"


class TokenIds(StrEnum):
    """Where the token ids of an answer come from."""

    FIELD = "with each piece"
    LOGPROBS = "with the log probabilities"
    TEXT = "encoded here from its text"


@dataclass(frozen=True, slots=True)
class PartCosts:
    """Tokens that parts of a chat message take, as measured at start: a picture, and more for each
    pixel; two seconds of sound. 0: the model has no such sense."""

    picture_tokens: float = 0.0
    tokens_per_pixel: float = 0.0
    sound_tokens: float = 0.0

    def picture(self, pixels: int) -> int:
        return max(round(self.picture_tokens + self.tokens_per_pixel * pixels), 1)

    def sound(self, parts: float) -> int:
        return max(round(self.sound_tokens * parts), 1)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One model of one server.

    `owner`: what the server calls itself, for people. `reply_model`: the model's name in replies,
    empty if they have none. `context_measured`, `block_measured`: whether the server told, or the
    number is assumed. `block_tokens`: its prefix cache counts in blocks of so many. `caches`:
    whether a prompt's beginning that was sent before is cheaper. `logprobs`: the most likely tokens
    it tells at each place, 0: none. `extensions`: whether it takes fields beyond OpenAI's.
    `tokenizer_checked`: whether it encoded a text as we do. `sees`, `hears`: whether its model
    takes pictures and sounds, which go to it then, as parts of chat messages that cost
    `part_costs`; `part_uuids`: whether it takes names for them.
    """

    url: str
    model: str
    owner: str = ""
    reply_model: str = ""
    context_tokens: int = 8192
    context_measured: bool = False
    prompt: PromptForm = PromptForm.IDS
    token_ids: TokenIds = TokenIds.TEXT
    logprobs: int = 0
    tells_cached: bool = False
    caches: bool = True
    block_tokens: int = 16
    block_measured: bool = False
    tells_timings: bool = False
    extensions: bool = True
    tokenizer_checked: bool = False
    sees: bool = False
    hears: bool = False
    part_costs: PartCosts = PartCosts()
    part_uuids: bool = False

    @property
    def warms_up(self) -> bool:
        """Whether prompts are sent ahead. Chat messages only if that is known to help, since the
        server may charge for each, or if it has more to do with them than to read text."""
        if self.prompt is not PromptForm.MESSAGES:
            return self.caches
        return self.tells_cached or self.sees or self.hears

    @property
    def probes_end(self) -> bool:
        """Whether the end of a message can be estimated."""
        return self.logprobs > 0 and self.prompt is not PromptForm.MESSAGES

    def facts(self) -> dict[str, str]:
        """For people: at start, and in `/status`."""
        ahead = "while the user speaks" if self.warms_up else "whole messages, at the endpoint"
        block = f"{self.block_tokens} tokens" + ("" if self.block_measured else " (assumed)")
        context = f"{self.context_tokens} tokens" + ("" if self.context_measured else " (assumed)")
        end = f"from the {self.logprobs} likeliest tokens" if self.probes_end else "no"
        return {
            "url": self.url,
            "model": self.model,
            "server": self.owner or "unknown",
            "context": context,
            "prompt": self.prompt.value,
            "prefill": ahead,
            "prefix_block": block if self.warms_up else "not used",
            "answer_token_ids": self.token_ids.value,
            "cached_tokens": "told" if self.tells_cached else "estimated here",
            "end_of_message": end,
            "pictures": "to its model" if self.sees else "as notes, in words",
            "speech": "to its model, in parts of 2 s" if self.hears else "as words",
            "timings": "told" if self.tells_timings else "measured here",
            "tokenizer": "compared" if self.tokenizer_checked else "not compared",
        }
