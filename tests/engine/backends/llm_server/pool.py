"""A bench whose engine decodes at several scripted servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headstart.engine import api
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities, TokenIds
from headstart.engine.backends.llm_server.http_client import HttpClient, Timeouts
from headstart.engine.backends.llm_server.probe import find_out
from headstart.engine.backends.llm_server.servers import (
    Known,
    Servers,
    Vocabulary,
    find_servers,
)
from headstart.engine.kvcache.token_stream import Stream
from tests.engine import fakes
from tests.engine.backends.llm_server.bench import PATIENT, AwaitingBench, scripted
from tests.engine.commands import user_item

SECOND_NS = 1_000_000_000
STEP_WAIT_S = 0.05


class Bytes:
    """The fakes' tokenizer, as a server's."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


def known(found: Capabilities) -> Known:
    vocabulary = Vocabulary(
        prompt_of=lambda tokens: tokens,
        encode=lambda text: list(text.encode()),
        stop_ids=frozenset({fakes.END}),
        end_token=fakes.USER_END,
    )
    return Known(found, vocabulary)


def join(url: str) -> Known:
    return known(find_out(url, None, Bytes(), wait_s=0.0))


class PoolBench(AwaitingBench):
    """Virtual time passes by `pass_s` only, but for the servers' own."""

    def __init__(
        self,
        count: int = 3,
        reply: Callable[[str], str] = fakes.echo,
        *,
        down: Sequence[int] = (),
        timeouts: Timeouts = PATIENT,
        capacity: int | None = None,
        **settings: Any,
    ) -> None:
        self.there = [scripted(reply, block=1, context_tokens=8192) for _ in range(count)]
        for server in self.there:
            server.__enter__()
        for number in down:
            self.kill(number)
        self._timeouts, self._capacity = timeouts, capacity
        super().__init__(reply=reply, blocks=1024, limit=4096, **settings)

    def make_backend(self, limit: int) -> tuple[LlmServerBackend, Callable[[str], Stream]]:
        client = HttpClient(timeouts=self._timeouts, clock=self._clock)
        found = find_servers([server.url for server in self.there], join, wait_s=0.0)
        servers = Servers(client, found, join, capacity=self._capacity)
        assert servers.capabilities.token_ids is TokenIds.FIELD
        self.backend = LlmServerBackend(client, servers, self._clock)

        def new_stream(name: str) -> Stream:
            return Stream(name, self.pool, fakes.VOCAB, limit, movable=False)

        return self.backend, new_stream

    # --- the servers -----------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        self.there[number].kill()

    def start(self, number: int, **changes: Any) -> None:
        """A new server at a dead one's address."""
        again = scripted(block=1, context_tokens=8192, **changes)
        again.port = self.there[number].port
        self.there[number] = again.__enter__()

    def status(self, number: int) -> api.LlmServerStatus:
        return self.backend.status()[number]

    def home(self, name: str = "s") -> int:
        """The number of the server that a session is at."""
        server = self.backend.servers.of(name)
        assert server is not None
        return [each.url for each in self.there].index(server.url)

    # --- time ------------------------------------------------------------------------------------

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS)

    def until(self, reached: Callable[[], bool], *, pass_s: float = 0.0) -> None:
        """Step until `reached`, with so much time from step to step."""
        while not reached():
            self.pass_s(pass_s)
            if not self.engine.step():
                self.backend.client.wait(STEP_WAIT_S)

    def close(self) -> None:
        self.engine.close()
        for server in self.there:
            server.__exit__()

    # --- sessions --------------------------------------------------------------------------------

    def open_with_question(self, name: str = "s", text: str = "hello") -> None:
        self.tell(api.Open(name, "Hi"), api.AddItem(name, user_item("u", text)))
        self.run()

    def finished_any(self) -> bool:
        return bool(self.of(api.Finished))

    def seen(self, kind: str) -> list[int]:
        """How many requests of a kind each server got."""
        return [len(server.of(kind)) for server in self.there]
