"""Nobody has to watch."""

from headstart.engine import api
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.telemetry.observer import Observer
from tests.gateway.dashboard.records import record


def test_the_base_observer_wants_nothing() -> None:
    """It is told all the same, and raises nothing."""
    observer = Observer()
    chunk = api.Chunk("s", api.TurnRef(1), 0, 8000, {"mel": 1.0}, 2.0, 1, 0)
    observer.turn(record())
    observer.chunk(chunk, ChunkBudget.from_chunk(chunk))
    observer.error("code", "message", None)
