"""Requests and replies of `/v1/completions` and `/v1/chat/completions`, as JSON objects.

Beyond OpenAI's fields, requests hold what vLLM, SGLang and llama.cpp understand each; a server
ignores what it does not know, or `Capabilities.extensions` is False.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.engine.api import Sampling
from headstart.engine.backends.llm_server.capabilities import Capabilities, PromptForm, TokenIds
from headstart.engine.backends.llm_server.errors import LlmFailed, LlmGarbage, encodable

Json = dict[str, Any]
Prompt = Sequence[int] | str | Sequence[Json]
"""Token ids, text, or chat messages: as in `Capabilities.prompt`."""

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
NEVER = -100.0
"""Bias of a token that must not come."""
MAX_TOKEN = 1 << 32
"""Token ids of a reply are below."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a reply. `ids` None: the server did not tell them. `ending`: the server's reason
    to end. `prompt_ms`: how long it took to prefill."""

    text: str = ""
    ids: tuple[int, ...] | None = None
    ending: str | None = None
    model: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_ms: float | None = None
    logprobs: Json | None = None


def path_of(capabilities: Capabilities) -> str:
    return CHAT if capabilities.prompt is PromptForm.MESSAGES else COMPLETIONS


def warm_up_body(capabilities: Capabilities, prompt: Prompt, domain: bytes = b"") -> Json:
    """A request whose answer is thrown away: one token."""
    return _body(capabilities, prompt, domain) | {"max_tokens": 1, "temperature": 0.0}


def probe_body(capabilities: Capabilities, prompt: Prompt, domain: bytes = b"") -> Json:
    """A request for the likeliest tokens behind `prompt`."""
    body = warm_up_body(capabilities, prompt, domain) | {"logprobs": capabilities.logprobs}
    if capabilities.extensions:
        body["return_tokens_as_token_ids"] = True
    return body


def answer_body(
    capabilities: Capabilities,
    prompt: Prompt,
    sampling: Sampling,
    max_tokens: int,
    *,
    stop_ids: Collection[int] = (),
    banned: Collection[int] = (),
    domain: bytes = b"",
) -> Json:
    """A streamed answer of at most `max_tokens`. `banned`: tokens that must not come in it.

    Stop strings and the limit of sentences are ours to apply. The repetition penalty is not sent:
    servers count the prompt's tokens too, and in a long conversation that bars every common word.
    """
    body = _body(capabilities, prompt, domain)
    body |= {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if banned:
        body["logit_bias"] = {str(token): NEVER for token in banned}
    if capabilities.token_ids is TokenIds.LOGPROBS:
        body["logprobs"] = 1
    if capabilities.extensions:
        body |= {"top_k": sampling.top_k, "min_p": 0.0, "timings_per_token": True}
        if capabilities.prompt is not PromptForm.MESSAGES:
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
            if stop_ids:
                body["stop_token_ids"] = sorted(stop_ids)
    return body


def _body(capabilities: Capabilities, prompt: Prompt, domain: bytes) -> Json:
    if capabilities.prompt is PromptForm.MESSAGES:
        body: Json = {"model": capabilities.model, "messages": list(prompt)}
    else:
        sent = prompt if isinstance(prompt, str) else list(prompt)
        body = {"model": capabilities.model, "prompt": sent}
        if capabilities.extensions:
            body["add_special_tokens"] = False
    if domain and capabilities.extensions:
        body["cache_salt"] = base64.b64encode(domain).decode()
    return body


def read(piece: Json) -> Piece:
    """A reply's object. Raises `LlmFailed` for an error in it, `LlmGarbage` for another object."""
    error = piece.get("error")
    if error:
        status = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        raise LlmFailed(status if isinstance(status, int) else 0, str(message)[:300])
    try:
        return _read(piece)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise LlmGarbage("a completion", f"{str(piece)[:300]} ({wrong!r})") from wrong


def _read(piece: Json) -> Piece:
    choices = piece["choices"]
    choice = choices[0] if choices else {}
    usage = piece.get("usage") or {}
    timings = piece.get("timings") or {}
    logprobs = choice.get("logprobs")
    if "delta" in choice or "message" in choice:
        text = (choice.get("delta") or choice.get("message") or {}).get("content") or ""
    else:
        text = choice.get("text") or ""
    if not isinstance(text, str):
        raise TypeError(f"a text that is {type(text).__name__}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    cached = timings.get("cache_n") if cached is None else cached
    return Piece(
        text=encodable(text),
        ids=_ids(choice),
        ending=choice.get("finish_reason"),
        model=piece.get("model") or "",
        prompt_tokens=_number(usage.get("prompt_tokens")),
        cached_tokens=_number(cached),
        prompt_ms=_time_ms(timings.get("prompt_ms")),
        logprobs=logprobs if isinstance(logprobs, dict) else None,
    )


def _number(value: Any) -> int | None:
    """A count; None for one that was not told, which some say by -1."""
    number = -1 if value is None else int(value)
    return None if number < 0 else number


def _time_ms(value: Any) -> float | None:
    time_ms = -1.0 if value is None else float(value)
    return time_ms if 0 <= time_ms < math.inf else None


def _token(value: Any) -> int:
    token = int(value)
    if not 0 <= token < MAX_TOKEN:
        raise ValueError(f"a token id that is {token}")
    return token


def _ids(choice: Json) -> tuple[int, ...] | None:
    """The token ids of a choice, in any of the forms that servers have for them."""
    ids = choice.get("token_ids")
    if ids is not None:
        return tuple(_token(token) for token in ids)
    logprobs = choice.get("logprobs") or {}
    if isinstance(logprobs.get("content"), list):  # llama.cpp
        tokens = [each.get("id") for each in logprobs["content"]]
        return None if None in tokens else tuple(_token(token) for token in tokens)
    spelled = logprobs.get("tokens")
    if spelled and all(str(token).startswith(_ID) for token in spelled):  # vLLM
        return tuple(_token(token.removeprefix(_ID)) for token in spelled)
    return None


_ID = "token_id:"


def probability(piece: Piece, token: int, spelling: str) -> float | None:
    """The probability of `token`, spelled so, at the first place of a reply; 0.0 if it is not among
    the likeliest that were told, None if none were. Raises `LlmGarbage`."""
    told = piece.logprobs or {}
    try:
        if isinstance(told.get("content"), list) and told["content"]:  # llama.cpp
            likeliest = told["content"][0].get("top_logprobs") or []
            found = [each["logprob"] for each in likeliest if each.get("id") == token]
            return _chance(found[0]) if found else 0.0
        top = told.get("top_logprobs")
        if isinstance(top, list) and top and isinstance(top[0], dict):
            logprob = top[0].get(f"{_ID}{token}", top[0].get(spelling))
            return 0.0 if logprob is None else _chance(logprob)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise LlmGarbage("log probabilities", f"{str(told)[:300]} ({wrong!r})") from wrong
    return None


def _chance(logprob: Any) -> float:
    chance = math.exp(logprob)
    if math.isnan(chance):
        raise ValueError("a log probability that is no number")
    return chance
