"""Finds out at start what an LLM server can: by asking it, not by its name.

A few small requests: the list of models, a text to encode, one prompt twice. What the server
refuses is asked for with less, down to plain chat messages.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import httpx

from headstart.engine.api import Sampling
from headstart.engine.backends.llm_server.capabilities import (
    Capabilities,
    PartCosts,
    PromptForm,
    TokenIds,
)
from headstart.engine.backends.llm_server.errors import (
    LlmBusy,
    LlmCannot,
    LlmFailed,
    LlmGarbage,
    LlmModelUnknown,
    LlmRefused,
    LlmServerError,
    LlmStalled,
    LlmTokenizerDiffers,
    LlmUnreachable,
)
from headstart.engine.backends.llm_server.http_client import (
    MAX_REPLY_BYTES,
    SHOWN_CHARS,
    headers,
    named,
    object_of,
    refusal,
)
from headstart.engine.backends.llm_server.media import picture_part, sound_part
from headstart.engine.backends.llm_server.wire import (
    CHAT,
    Json,
    Piece,
    answer_body,
    path_of,
    read,
)
from headstart.engine.errors import BadSettings

WAIT_S = 300.0
"""For a server that is starting; vLLM takes minutes to load a large model."""
REPLY_WAIT_S = 180.0
AGAIN_S = 1.0
LOGPROBS = (20, 5)
"""Numbers of likeliest tokens to ask for; OpenAI's limit is the latter."""
PROBE_TOKENS = 256
"""Length of the prompt that is sent twice. One less is odd in all powers of two, so each size of
block leaves another number of cached tokens."""
ASSUMED_CONTEXT_TOKENS = 8192
PROBE_SIDE = 224
"""Of the smaller of two grey pictures, in pixels."""
Senses = Literal["words", "auto", "native"]
_SAMPLE = "Hello, what's 1234 + 56? Wie spät ist es?  Il est déjà 7h30.\nこんにちは 🙂 naïve\tend"
_WORDS = "The quick brown fox jumps over the lazy dog and runs away from 3 wolves. "

Report = Callable[[str, int, int], None]


class ModelTokenizer(Protocol):
    """The tokenizer of `--tokenizer`."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...


def split_url(url: str) -> str:
    """The part of `url` before /v1. Raises `BadSettings` for one that is no HTTP URL."""
    expected = "an http:// or https:// URL with a host, such as http://127.0.0.1:8000"
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadSettings("llm", expected, url) from error
    is_http = parsed.scheme in ("http", "https") and (parsed.port or 1) < 1 << 16
    if not is_http or not parsed.host or parsed.query or parsed.userinfo:
        raise BadSettings("llm", expected, url)
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def find_out(
    base_url: str,
    model: str | None,
    tokenizer: ModelTokenizer | None,
    key: str | None = None,
    *,
    report: Report = lambda what, done, total: None,
    wait_s: float = WAIT_S,
    reply_wait_s: float = REPLY_WAIT_S,
    senses: Senses = "words",
) -> Capabilities:
    """What the server at `base_url` can do with `model`; None: its only one.

    `senses`: whether pictures and sounds go to its model: never ("words"), if it takes them
    ("auto"), or always ("native"). Waits up to `wait_s` for a server that does not answer yet, and
    up to `reply_wait_s` for each reply. Raises an `LlmServerError`, `LlmCannot` for a model without
    senses where they are a must.
    """
    timeout = httpx.Timeout(reply_wait_s, connect=5.0)
    with httpx.Client(base_url=base_url, headers=headers(key), timeout=timeout) as http:
        probe = _Probe(http, base_url, key, report, wait_s, reply_wait_s)
        return probe.run(model, tokenizer, senses)


class _Probe:
    def __init__(
        self,
        http: httpx.Client,
        url: str,
        key: str | None,
        report: Report,
        wait_s: float,
        reply_wait_s: float,
    ) -> None:
        self._http = http
        self._url = url
        self._key = key
        self._report = report
        self._wait_s = wait_s
        self._reply_wait_s = reply_wait_s

    def run(
        self, model: str | None, tokenizer: ModelTokenizer | None, senses: Senses
    ) -> Capabilities:
        found = self._model(model)
        self._report("LLM server", 0, 0)
        if tokenizer is not None:
            found = self._checked(found, tokenizer)
        if senses != "words":
            sensing = self._senses(found)
            if sensing is not None:
                return sensing
            if senses == "native":
                raise LlmCannot("senses = native", "its model takes neither pictures nor sounds")
        if tokenizer is not None:
            ids = self._prompt(tokenizer, found.context_tokens)
            completed = self._completions(found, ids, tokenizer)
            if completed is not None:
                return completed
        return self._chat(found)

    # --- the model -------------------------------------------------------------------------------

    def _model(self, wanted: str | None) -> Capabilities:
        listed = self._models()
        names = [str(entry.get("id", "")) for entry in listed]
        if wanted is None:
            if len(names) != 1:
                raise LlmModelUnknown(None, names, self._url)
            wanted = names[0]
        elif names and wanted not in names:
            raise LlmModelUnknown(wanted, names, self._url)
        entry = next((e for e in listed if e.get("id") == wanted), {})
        context = self._context(entry)
        return Capabilities(
            url=self._url,
            model=wanted,
            owner=str(entry.get("owned_by", "")),
            context_tokens=context or ASSUMED_CONTEXT_TOKENS,
            context_measured=context is not None,
        )

    def _models(self) -> list[Json]:
        """The server's models; none if it does not list them."""
        until_s = time.monotonic() + self._wait_s
        while True:
            try:
                found = self._ask("GET", "/v1/models")
                break
            except LlmRefused as error:
                if error.status in (404, 405):
                    return []
                raise
            except (LlmUnreachable, LlmBusy) as error:
                if time.monotonic() + AGAIN_S > until_s:
                    raise
                self._report(f"waiting for the LLM server ({error.code})", 0, 0)
                time.sleep(AGAIN_S)
        data = found.get("data")
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise LlmGarbage("a list of models", str(found)[:SHOWN_CHARS])
        return data

    def _context(self, entry: Json) -> int | None:
        """The longest context, as the server tells it."""
        meta = entry.get("meta")
        told = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
        if told is None:
            with contextlib.suppress(LlmServerError):
                settings = self._ask("GET", "/props").get("default_generation_settings")
                told = settings.get("n_ctx") if isinstance(settings, dict) else None
        return told if isinstance(told, int) and told > 0 else None

    # --- the tokenizer ---------------------------------------------------------------------------

    def _checked(self, found: Capabilities, tokenizer: ModelTokenizer) -> Capabilities:
        """Raises `LlmTokenizerDiffers`. vLLM and llama.cpp name the fields differently; each
        ignores the other's."""
        body = {
            "model": found.model,
            "prompt": _SAMPLE,
            "content": _SAMPLE,
            "add_special_tokens": False,
            "add_special": False,
        }
        try:
            theirs = self._ask("POST", "/tokenize", body).get("tokens")
        except (LlmRefused, LlmFailed, LlmGarbage):
            return found
        if not isinstance(theirs, list) or not all(isinstance(token, int) for token in theirs):
            return found
        ours = tokenizer.encode(_SAMPLE)
        if ours != theirs:
            raise LlmTokenizerDiffers(_SAMPLE, ours, theirs)
        return replace(found, tokenizer_checked=True)

    @staticmethod
    def _prompt(tokenizer: ModelTokenizer, context_tokens: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < PROBE_TOKENS:
            ids += tokenizer.encode(_WORDS)
        return ids[: min(PROBE_TOKENS, context_tokens // 2)]

    # --- completions -----------------------------------------------------------------------------

    def _completions(
        self, found: Capabilities, ids: Sequence[int], tokenizer: ModelTokenizer
    ) -> Capabilities | None:
        """What its completions can; None if it has none."""
        self._report("LLM server: completions", 0, 0)
        for candidate in _candidates(found):
            prompt = tokenizer.decode(ids) if candidate.prompt is PromptForm.TEXT else ids
            try:
                first = self._complete(candidate, prompt)
            except LlmRefused:
                continue
            form = TokenIds.TEXT if first.ids is None else TokenIds.FIELD
            candidate = replace(candidate, token_ids=form, reply_model=first.model)
            candidate = self._with_likeliest(candidate, prompt)
            return self._with_cache(candidate, self._complete(candidate, prompt), len(ids))
        return None

    def _with_likeliest(self, found: Capabilities, prompt: Any) -> Capabilities:
        """How many of the likeliest tokens it tells, and whether ids come without them."""
        for count in LOGPROBS:
            with contextlib.suppress(LlmRefused):
                piece = self._complete(found, prompt, {"logprobs": count})
                if piece.logprobs is None:
                    break
                form = found.token_ids
                if form is TokenIds.TEXT and piece.ids is not None:
                    form = TokenIds.LOGPROBS
                return replace(found, logprobs=count, token_ids=form)
        return replace(found, logprobs=0)

    def _with_cache(self, found: Capabilities, second: Piece, length: int) -> Capabilities:
        """The block size of its prefix cache, by how much of a repeated prompt was cached."""
        found = replace(found, tells_timings=second.prompt_ms is not None)
        if second.cached_tokens is None:
            return found
        cached = second.cached_tokens
        found = replace(found, tells_cached=True)
        if not cached:
            return replace(found, caches=length < PROBE_TOKENS)
        block = block_of(length, cached)
        return found if block is None else replace(found, block_tokens=block, block_measured=True)

    def _complete(
        self, found: Capabilities, prompt: Any, extra: Mapping[str, Any] | None = None
    ) -> Piece:
        """One token of a completion, unstreamed. Raises `LlmRefused` if it takes no such thing."""
        sampling = Sampling(repetition_penalty=1.0)
        body = answer_body(found, prompt, sampling, 1) | {"stream": False} | dict(extra or {})
        del body["stream_options"]
        return read(self._ask("POST", path_of(found), body))

    # --- chat ------------------------------------------------------------------------------------

    def _chat(self, found: Capabilities) -> Capabilities:
        """Chat messages alone, for lack of a tokenizer here or completions there. Whether it is
        worth sending them ahead shows in what a repeated one finds cached."""
        self._report("LLM server: chat", 0, 0)
        messages = [{"role": "user", "content": _WORDS * (PROBE_TOKENS // 16)}]
        chat = replace(found, prompt=PromptForm.MESSAGES, token_ids=TokenIds.TEXT)
        try:
            first = self._complete(chat, messages)
        except LlmRefused:
            chat = replace(chat, extensions=False)
            first = self._complete(chat, messages)
        second = self._complete(chat, messages)
        told = bool(second.cached_tokens)
        timings = second.prompt_ms is not None
        return replace(chat, reply_model=first.model, tells_cached=told, tells_timings=timings)

    # --- senses ----------------------------------------------------------------------------------

    def _senses(self, found: Capabilities) -> Capabilities | None:
        """Chat messages with pictures and sounds in them; None if its model takes neither. A server
        that takes a part and reads no more tokens for it has only left it out."""
        self._report("LLM server: senses", 0, 0)
        small = self._part_tokens(found, picture_part(PROBE_SIDE))
        large = None if small is None else self._part_tokens(found, picture_part(2 * PROBE_SIDE))
        unit = self._part_tokens(found, sound_part())
        if not small and not unit:
            return None
        pixels = PROBE_SIDE**2
        slope = 0.0 if not small or large is None else max(large - small, 0) / (3 * pixels)
        costs = PartCosts(max((small or 0) - slope * pixels, 0.0), slope, unit or 0)
        named = (picture_part(PROBE_SIDE) if small else sound_part()) | {"uuid": "headstart-probe"}
        found = replace(
            self._chat(found),
            sees=bool(small),
            hears=bool(unit),
            part_costs=costs,
        )
        takes_names = found.extensions and self._part_tokens(found, named) is not None
        return replace(found, part_uuids=takes_names)

    def _part_tokens(self, found: Capabilities, part: Json) -> int | None:
        """Tokens that a part takes; None if it is refused, or nobody tells."""
        with_part = self._prompt_tokens(found, [{"type": "text", "text": "Hello."}, part])
        without = None if with_part is None else self._prompt_tokens(found, "Hello.")
        return None if with_part is None or without is None else max(with_part - without, 0)

    def _prompt_tokens(self, found: Capabilities, content: Any) -> int | None:
        messages = [{"role": "user", "content": content}]
        body = {"model": found.model, "messages": messages, "max_tokens": 1}
        try:
            return read(self._ask("POST", CHAT, body)).prompt_tokens
        except (LlmRefused, LlmFailed):  # llama.cpp refuses a picture with 500
            return None

    # --- requests --------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        until_s = time.monotonic() + self._reply_wait_s
        content = bytearray()
        try:
            with self._http.stream(method, path, json=body) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > MAX_REPLY_BYTES:
                        raise LlmGarbage("a reply", f"more than {MAX_REPLY_BYTES} bytes")
                    if time.monotonic() > until_s:
                        raise LlmStalled(self._reply_wait_s)
        except httpx.HTTPError as error:
            raise named(error, self._url, self._reply_wait_s) from error
        if response.status_code != httpx.codes.OK:
            raise refusal(response.status_code, response.headers, bytes(content), self._key)
        return object_of(bytes(content))


def _candidates(found: Capabilities) -> Iterator[Capabilities]:
    """What to ask a server for, the most first."""
    for prompt in (PromptForm.IDS, PromptForm.TEXT):
        for extensions in (True, False):
            yield replace(found, prompt=prompt, extensions=extensions)


def block_of(length: int, cached: int) -> int | None:
    """The size of a cache's blocks, a power of two, if `cached` tokens of a repeated prompt of
    `length` were found there. The last token is always computed again. None: no size explains it.
    """
    sizes = (1 << power for power in range(9))
    fits = [size for size in sizes if (length - 1) // size * size == cached]
    return min(fits) if fits else None
