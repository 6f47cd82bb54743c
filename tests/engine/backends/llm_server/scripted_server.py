"""An LLM server for tests: real HTTP, a scripted model, and faults on demand.

It speaks as vLLM, llama.cpp or a plain OpenAI-compatible server does (`dialect`), keeps a prefix
cache of whole blocks, and logs what it was asked. `hold` stops replies of a kind until `release`,
so that tests need no sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
NextToken = Callable[[Sequence[int]], int]
END_WAIT_S = 10.0
VLLM, LLAMACPP, OPENAI, CHAT = "vllm", "llama.cpp", "openai", "chat"


@dataclass
class Seen:
    """A request as it came, and what became of it. `cached`: tokens of its prompt in the cache."""

    path: str
    body: Json
    headers: dict[str, str]
    prompt: list[int] = field(default_factory=list)
    cached: int = 0
    sent: int = 0  # tokens
    done: bool = False
    abandoned: bool = False  # the client closed the connection first

    @property
    def kind(self) -> str:
        if self.body.get("stream"):
            return "answer"
        return "probe" if self.body.get("logprobs") else "warm-up"


@dataclass(frozen=True)
class Fault:
    """What happens to the next request of a `kind` instead of, or after `after` tokens of, a reply:
    a `status`, the raw bytes `garbage`, silence (`stall`), or a closed connection."""

    kind: str = "answer"
    status: int = 0
    garbage: bytes = b""
    stall: bool = False
    after: int = 0
    headers: str = ""
    model: str = ""
    error: str = ""


class ScriptedServer:
    """`next_token` is the model; `spell` and `parse` are its tokenizer; `likely`: probability of
    each token behind a prompt. Use as a context manager."""

    def __init__(
        self,
        next_token: NextToken,
        *,
        stop_ids: frozenset[int] = frozenset(),
        spell: Callable[[int], bytes] = lambda token: bytes([token]) if token < 256 else b"",
        parse: Callable[[str], list[int]] = lambda text: list(text.encode()),
        render: Callable[[list[Json]], list[int]] | None = None,
        likely: Callable[[Sequence[int]], dict[int, float]] = lambda tokens: {},
        dialect: str = VLLM,
        models: Sequence[str] = ("scripted",),
        context_tokens: int = 4096,
        block: int = 16,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
        closes: bool = False,
        tells_cached: bool = True,
        slowly_s: float = 0.0,
        senses: Sequence[str] = (),
    ) -> None:
        self.next_token, self.stop_ids, self.spell, self.parse = next_token, stop_ids, spell, parse
        self.render, self.likely = render, likely
        self.dialect, self.models, self.context_tokens = dialect, list(models), context_tokens
        self.block, self.key, self.closes, self.tells_cached = block, key, closes, tells_cached
        self.slowly_s = slowly_s  # from token to token of an answer
        self.senses = {"text", *senses}  # types of parts that messages may have
        self.health = 200
        self.metrics = ""  # the page; empty: there is none
        self.requests: list[Seen] = []
        self.faults: deque[Fault] = deque()
        self._held: set[str] = set()
        self._cache: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._released = asyncio.Event()
        self._tls = tls
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thawed = threading.Event()
        self.port = 0

    # --- for tests -------------------------------------------------------------------------------

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        assert self._ready.wait(END_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    def kill(self) -> None:
        """As a process dies: its connections are closed, and nobody listens any more."""
        self._thawed.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_WAIT_S)
        assert not self._thread.is_alive()

    def freeze(self) -> None:
        """Answer nobody any more, though connections are taken."""
        self._thawed.clear()
        self._loop.call_soon_threadsafe(self._thawed.wait)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def hold(self, *kinds: str) -> None:
        """Stop replies of these kinds before their first token."""

        def act() -> None:
            self._released.clear()
            self._held.update(kinds)

        self._on_loop(act)

    def release(self) -> None:
        def act() -> None:
            self._held.clear()
            self._released.set()

        self._on_loop(act)

    def of(self, kind: str) -> list[Seen]:
        """Requests of a kind, in order."""
        return [seen for seen in list(self.requests) if seen.kind == kind and seen.prompt]

    def _on_loop(self, act: Callable[[], Any]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(act)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(END_WAIT_S)

    # --- serving ---------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self._tls)
        server = self._loop.run_until_complete(serving)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        while tasks := asyncio.all_tasks(self._loop):  # one that cancels another may miss its own
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=0.1))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError)
        with contextlib.suppress(*gone):
            early: bytes | None = b""  # of the next request
            while early is not None:
                early = await self._exchange(reader, writer, early)
        writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes
    ) -> bytes | None:
        """One request, whose first bytes are `early`. None if the connection is to be closed, or
        what has come of the next one."""
        head = (early + await reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head.strip().split("\r\n")
        method, path, _ = line.split()
        headers = {k.lower(): v for k, _, v in (each.partition(": ") for each in fields)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(path, json.loads(body) if body else {}, headers)
        self.requests.append(seen)
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            self._whole(writer, 401, {"error": {"message": "wrong key"}})
            return b""
        gone = asyncio.create_task(reader.read(1))
        answering = asyncio.create_task(self._answer(method, seen, writer))
        await asyncio.wait({gone, answering}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and (gone.exception() or not gone.result()):
            answering.cancel()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await answering
            seen.abandoned = not seen.done
            return None
        stays = await answering
        await writer.drain()
        if not gone.done():
            gone.cancel()
        early = b""
        with contextlib.suppress(asyncio.CancelledError):
            early = await gone
        return early if stays and not self.closes else None

    async def _answer(self, method: str, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        if seen.path == "/metrics" and self.metrics:
            return self._raw(writer, self.metrics.encode(), "text/plain; version=0.0.4")
        if method == "GET":
            return self._whole(writer, *self._get(seen.path))
        if seen.path == "/tokenize" and self.dialect in (VLLM, LLAMACPP):
            text = seen.body["prompt" if self.dialect == VLLM else "content"]
            return self._whole(writer, 200, {"tokens": self.parse(text)})
        chat = seen.path == "/v1/chat/completions"
        if not chat and (seen.path != "/v1/completions" or self.dialect == CHAT):
            return self._whole(writer, 404, {"detail": "Not Found"})
        return await self._complete(seen, writer, chat=chat)

    def _get(self, path: str) -> tuple[int, Json]:
        if path == "/v1/models":
            entries: list[Json] = [{"id": name, "object": "model"} for name in self.models]
            for entry in entries:
                if self.dialect == VLLM:
                    entry |= {"owned_by": "vllm", "max_model_len": self.context_tokens}
                elif self.dialect == LLAMACPP:
                    entry |= {"owned_by": "llamacpp", "meta": {"n_ctx_train": 1 << 20}}
            return 200, {"object": "list", "data": entries}
        if path == "/health" and self.dialect in (VLLM, LLAMACPP):
            return self.health, {"status": "ok" if self.health == 200 else "unavailable"}
        if path == "/props" and self.dialect == LLAMACPP:
            return 200, {"default_generation_settings": {"n_ctx": self.context_tokens}}
        return 404, {"detail": "Not Found"}

    def _refusal(self, body: Json) -> tuple[int, Json] | None:
        """What a dialect does not take."""
        if body.get("model") not in self.models:
            return 404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}}
        if self.dialect in (OPENAI, CHAT):
            unknown = {"top_k", "min_p", "add_special_tokens", "cache_salt", "return_token_ids"}
            if found := sorted(unknown & body.keys()):
                return 400, {"error": {"message": f"Unrecognized argument: {found[0]}"}}
            if isinstance(body.get("prompt"), list):
                return 400, {"error": {"message": "prompt must be a string"}}
        return None

    async def _complete(self, seen: Seen, writer: asyncio.StreamWriter, *, chat: bool) -> bool:
        body = seen.body
        if (refused := self._refusal(body)) is not None:
            return self._whole(writer, *refused)
        if chat:
            kinds = {part["type"] for part in _parts(body["messages"])}
            if self.render is None or not kinds <= self.senses:
                said = f"not supported: {sorted(kinds - self.senses) or 'chat'}"
                return self._whole(writer, 400, {"error": {"message": said}})
            tokens = self.render(body["messages"])
        else:
            prompt = body["prompt"]
            tokens = list(prompt) if isinstance(prompt, list) else self.parse(prompt)
        if len(tokens) + body["max_tokens"] > self.context_tokens:
            said = f"This model's maximum context length is {self.context_tokens} tokens."
            return self._whole(writer, 400, {"error": {"message": said}})
        seen.prompt = tokens
        fault = self.faults[0] if self.faults and self.faults[0].kind == seen.kind else None
        if fault is not None:
            self.faults.popleft()
        if fault is not None and fault.status:
            return self._whole(
                writer, fault.status, {"error": {"message": "scripted"}}, fault.headers
            )
        while seen.kind in self._held:
            await self._released.wait()
        seen.cached = self._cached(tokens)
        self._remember(tokens)
        choices = self._choices(seen, tokens, chat=chat, fault=fault)
        if body.get("stream"):
            return await self._stream(seen, writer, choices, fault)
        whole: Json = {"text": "", "finish_reason": "length"}
        ids: list[int] = []
        for choice in choices:
            text = whole["text"] + choice.get("text", "")
            ids += choice.get("token_ids", [])
            whole |= {**choice, "text": text}
        if chat:
            whole["message"] = {"role": "assistant", "content": whole.pop("text")}
            whole.pop("delta", None)
        if ids:
            whole["token_ids"] = ids
        reply = self._envelope(seen, [whole], fault) | self._usage(seen)
        seen.done = True
        if fault is not None and fault.garbage:
            return self._raw(writer, fault.garbage)
        return self._whole(writer, 200, reply)

    def _choices(
        self, seen: Seen, tokens: list[int], *, chat: bool, fault: Fault | None
    ) -> Iterator[Json]:
        """The tokens of a reply, one choice each; the last has the reason of the end."""
        body = seen.body
        said: list[int] = []
        banned = {int(token) for token, bias in body.get("logit_bias", {}).items() if bias < -50}
        stops = self.stop_ids | set(body.get("stop_token_ids", ()))
        while True:
            token = self.next_token([*tokens, *said])
            if token in banned:
                token = ord("-")
            said.append(token)
            ends = token in stops
            text = "" if ends else self.spell(token).decode("utf-8", errors="replace")
            choice: Json = {"index": 0, "finish_reason": None}
            choice |= {"delta": {"content": text}} if chat else {"text": text}
            if self.dialect == VLLM and body.get("return_token_ids"):
                choice["token_ids"] = [token]
            if body.get("logprobs"):
                choice["logprobs"] = self._logprobs([*tokens, *said[:-1]], token)
            if ends or len(said) >= body["max_tokens"]:
                choice["finish_reason"] = "stop" if ends else "length"
            seen.sent = len(said)
            self._remember([*tokens, *said])
            yield choice
            if choice["finish_reason"]:
                return

    def _logprobs(self, before: Sequence[int], token: int) -> Json:
        likely = self.likely(before) or {token: 1.0}
        if self.dialect == LLAMACPP:
            top = [{"id": t, "token": "", "logprob": math.log(p)} for t, p in likely.items()]
            return {"content": [{"id": token, "token": "", "logprob": 0.0, "top_logprobs": top}]}
        if self.dialect == OPENAI:
            told = {self.spell(t).decode(errors="replace"): math.log(p) for t, p in likely.items()}
            return {"tokens": ["?"], "token_logprobs": [0.0], "top_logprobs": [told]}
        told = {f"token_id:{t}": math.log(p) for t, p in likely.items()}
        return {"tokens": [f"token_id:{token}"], "token_logprobs": [0.0], "top_logprobs": [told]}

    async def _stream(
        self,
        seen: Seen,
        writer: asyncio.StreamWriter,
        choices: Iterator[Json],
        fault: Fault | None,
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for count, choice in enumerate(choices):
            if fault is not None and count == fault.after and not fault.model:
                if fault.stall:
                    await asyncio.Event().wait()
                if fault.garbage:
                    _chunk(writer, fault.garbage)
                if fault.error:
                    _event(writer, {"error": {"message": fault.error, "code": 500}})
                await writer.drain()
                return False
            _event(writer, self._envelope(seen, [choice], fault))
            await writer.drain()
            await asyncio.sleep(self.slowly_s)
        _event(writer, self._envelope(seen, [], fault) | self._usage(seen))
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        seen.done = True
        return True

    def _envelope(self, seen: Seen, choices: list[Json], fault: Fault | None) -> Json:
        model = fault.model if fault is not None and fault.model else seen.body["model"]
        return {"id": "cmpl-1", "model": model, "choices": choices}

    def _usage(self, seen: Seen) -> Json:
        usage: Json = {"prompt_tokens": len(seen.prompt), "completion_tokens": seen.sent}
        if self.tells_cached and self.dialect in (VLLM, CHAT):
            usage["prompt_tokens_details"] = {"cached_tokens": seen.cached}
        if self.dialect == LLAMACPP:
            timings = {"cache_n": seen.cached, "prompt_n": len(seen.prompt) - seen.cached}
            return {"usage": usage, "timings": timings | {"prompt_ms": 1.5}}
        return {"usage": usage}

    # --- the prefix cache ------------------------------------------------------------------------

    def _cached(self, tokens: Sequence[int]) -> int:
        """Tokens of a prompt in whole cached blocks; the last token is always computed."""
        known = itertools.takewhile(lambda key: key in self._cache, self._keys(tokens[:-1]))
        return self.block * sum(1 for _ in known)

    def _remember(self, tokens: Sequence[int]) -> None:
        self._cache.update(self._keys(tokens))

    def _keys(self, tokens: Sequence[int]) -> Iterator[int]:
        """A key of each whole block, by all tokens up to its end."""
        key = 0
        for end in range(self.block, len(tokens) + 1, self.block):
            key = hash((key, *tokens[end - self.block : end]))
            yield key

    # --- bytes -----------------------------------------------------------------------------------

    def _whole(
        self, writer: asyncio.StreamWriter, status: int, reply: Json, headers: str = ""
    ) -> bool:
        body = json.dumps(reply).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return True

    @staticmethod
    def _raw(
        writer: asyncio.StreamWriter, body: bytes, content_type: str = "application/json"
    ) -> bool:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return True


def _parts(messages: Sequence[Json]) -> Iterator[Json]:
    for message in messages:
        if isinstance(message["content"], list):
            yield from message["content"]


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _event(writer: asyncio.StreamWriter, data: Json) -> None:
    _chunk(writer, f"data: {json.dumps(data)}\n\n".encode())
