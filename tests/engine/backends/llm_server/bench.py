"""`tests.engine.fakes.Bench` with an LLM server as its backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headstart.engine.backends.llm_server.account import AccountPool
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities, TokenIds
from headstart.engine.backends.llm_server.http_client import HttpClient, Timeouts
from headstart.engine.backends.llm_server.servers import Known, Server, Servers, Vocabulary
from headstart.engine.kvcache.token_stream import Stream
from tests.engine import fakes
from tests.engine.backends.llm_server.scripted_server import ScriptedServer

WAIT_S = 20.0
PATIENT = Timeouts(connect_s=WAIT_S, first_s=WAIT_S, between_s=WAIT_S)


def next_token(reply: Callable[[str], str]) -> Callable[[Sequence[int]], int]:
    """The fakes' model: it answers byte by byte with `reply` to the last user message."""
    runner = fakes.FakeRunner(reply)

    def choose(tokens: Sequence[int]) -> int:
        if fakes.ASSISTANT not in tokens:
            return ord(" ")
        try:
            return int(runner._logits(list(tokens)).argmax())
        except IndexError:  # a prompt sent ahead, in which the last answer is over
            return ord(" ")

    return choose


def likely(tokens: Sequence[int]) -> dict[int, float]:
    """The fakes' estimate of the next token behind a word."""
    logits = fakes.FakeRunner()._behind_a_word(tokens)
    chances = logits.softmax(dim=-1)
    return {t: float(chances[t]) for t in range(fakes.VOCAB) if not math.isinf(float(logits[t]))}


def scripted(reply: Callable[[str], str] = fakes.echo, **settings: Any) -> ScriptedServer:
    """A server with the fakes' model."""
    return ScriptedServer(
        next_token(reply), stop_ids=frozenset({fakes.END}), likely=likely, **settings
    )


def backend_of(
    server: ScriptedServer, clock: Callable[[], int], timeouts: Timeouts = PATIENT, **settings: Any
) -> LlmServerBackend:
    """A backend over `server` that knows it to speak as vLLM does; `settings` of `Capabilities`."""
    known: dict[str, Any] = {"token_ids": TokenIds.FIELD, "logprobs": 5, "tells_cached": True}
    known |= {"block_tokens": server.block, "reply_model": server.models[0], **settings}
    vocabulary = Vocabulary(
        prompt_of=lambda tokens: tokens,
        encode=lambda text: list(text.encode()),
        stop_ids=frozenset({fakes.END}),
        end_token=fakes.USER_END,
    )
    client = HttpClient(timeouts=timeouts, clock=clock)
    capabilities = Capabilities(server.url, server.models[0], **known)
    there = Server(server.url, Known(capabilities, vocabulary))
    return LlmServerBackend(client, Servers(client, [there]), clock)


def stream_of(server: ScriptedServer, bench: fakes.Bench, limit: int) -> Callable[[str], Stream]:
    def new_stream(name: str) -> Stream:
        size = server.block
        return Stream(name, bench.pool, fakes.VOCAB, limit, ahead=size, movable=False)

    return new_stream


class AwaitingBench(fakes.Bench):
    """A bench whose engine decodes at servers, which `run` waits for."""

    backend: LlmServerBackend

    def run(self) -> None:
        """Step until there is nothing to do and no request is in flight."""
        while True:
            while self.engine.step():
                pass
            if not self.backend.busy:
                break
            assert self.backend.client.wait(WAIT_S), "no server says anything"
        self.engine.check_accounting()


class ServerBench(AwaitingBench):
    """A bench whose engine decodes at a scripted server. That server's cache counts in single
    tokens, as llama.cpp's does."""

    def __init__(
        self,
        script: str = "what is the capital of france",
        reply: Callable[[str], str] = fakes.echo,
        *,
        server: ScriptedServer | None = None,
        capabilities: dict[str, Any] | None = None,
        timeouts: Timeouts = PATIENT,
        **settings: Any,
    ) -> None:
        own = scripted(self._reply, block=1) if server is None else server
        self.server = own.__enter__()
        self._known = {"timeouts": timeouts, **(capabilities or {})}
        super().__init__(script, reply, **settings)

    def _reply(self, asked: str) -> str:
        return self.runner.reply(asked)  # a test may have given it another

    def make_pool(self, blocks: int, max_cached: int) -> AccountPool:
        """The account that engines of LLM servers keep."""
        return AccountPool(blocks, 16, max_cached)

    def make_backend(self, limit: int) -> tuple[LlmServerBackend, Callable[[str], Stream]]:
        self.backend = backend_of(self.server, self._clock, **self._known)
        return self.backend, stream_of(self.server, self, limit)

    def step_until(self, reached: Callable[[], bool]) -> None:
        """Step until `reached`, waiting for the server."""
        while not reached():
            if not self.engine.step():
                self.backend.client.wait(0.05)

    def close(self) -> None:
        self.engine.close()
        self.server.__exit__()
