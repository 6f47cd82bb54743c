"""A typed conversation with an engine in this process, without speech recognition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.benchmarks.harness.in_process import Live
from headstart.engine import api
from headstart.gateway.config import load
from headstart.gateway.default_prompts import INSTRUCTIONS, blind_note


@dataclass(frozen=True)
class Reply:
    """`first_ms`: time from the request to the first text; `sent_ms`: before that, until the engine
    had taken in the message."""

    text: str
    usage: api.Usage
    first_ms: float
    finished: api.FinishReason
    sent_ms: float = 0.0


class Chat:
    """One session over `live`, with the gateway's default instructions and sampling."""

    def __init__(
        self, live: Live, name: str, instructions: str = INSTRUCTIONS, share_domain: bytes = b""
    ) -> None:
        self._live, self._name = live, name
        settings = load()
        self._sampling = api.Sampling(
            temperature=settings.temperature,
            max_tokens=settings.max_output_tokens,
            max_sentences=settings.max_sentences,
        )
        self._count = 0
        blind = blind_note(instructions)
        live.engine.receive(api.Open(name, instructions, (), blind, share_domain=share_domain))
        live.run()

    def show(self, image: api.Image) -> None:
        """Send a camera frame, and wait until what is written in it is read."""
        self._live.engine.receive(api.Frame(self._name, 0, image))
        self._live.read()

    def say(self, text: str, images: Sequence[api.Image] = ()) -> Reply:
        """Send a typed message, behind pictures if there are any; returns the whole answer."""
        self._count += 1
        seen = len(self._live.events)
        item = api.Item(f"u{self._count}", api.Role.USER, (*images, api.Text(text)))
        sent_ns = time.monotonic_ns()
        self._live.engine.receive(api.AddItem(self._name, item))
        self._live.run()
        began_ns = time.monotonic_ns()
        self._live.engine.receive(
            api.Respond(self._name, self._count, f"a{self._count}", self._sampling)
        )
        self._live.run()
        events = self._live.events[seen:]
        finished = next(e for e in events if isinstance(e, api.Finished))
        first = [e.at_ns for e in events if isinstance(e, api.Delta)]
        first_ms = ((first[0] if first else time.monotonic_ns()) - began_ns) / 1e6
        sent_ms = (began_ns - sent_ns) / 1e6
        return Reply(finished.text.strip(), finished.usage, first_ms, finished.reason, sent_ms)

    def close(self) -> None:
        self._live.close(self._name)
