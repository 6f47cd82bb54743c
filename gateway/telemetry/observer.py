"""Who is told of turns, chunks and errors as they happen. The base class wants nothing."""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.telemetry.turn_record import TurnRecord


class Observer:
    """Called on the loop by session cores; must not block and never raises for what it is given."""

    def turn(self, record: TurnRecord) -> None:
        """A response is done, or more is known of one that was: then with a higher revision."""

    def chunk(self, chunk: api.Chunk, budget: ChunkBudget) -> None:
        """What a chunk of somebody's speech cost."""

    def error(
        self, code: str, message: str, session_id: str | None, response_id: str | None = None
    ) -> None:
        """Something went wrong, in a session if one is named."""


class Observers(Observer):
    """Several, told one after the other."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def turn(self, record: TurnRecord) -> None:
        for observer in self._observers:
            observer.turn(record)

    def chunk(self, chunk: api.Chunk, budget: ChunkBudget) -> None:
        for observer in self._observers:
            observer.chunk(chunk, budget)

    def error(
        self, code: str, message: str, session_id: str | None, response_id: str | None = None
    ) -> None:
        for observer in self._observers:
            observer.error(code, message, session_id, response_id)
