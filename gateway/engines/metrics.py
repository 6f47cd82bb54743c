"""What `/metrics` shows of each engine by its name. Totals over all engines keep the names that one
engine had (`headstart.gateway.telemetry.engine_metrics`)."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from headstart.gateway.engines.engines import STATES, Engines
from headstart.gateway.telemetry import names


class EnginesCollector(Collector):
    """Of the engines that have connected or are started here."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        state = names.ENGINE_STATE.values()
        sessions = names.ENGINE_SESSIONS.values()
        kv_used = names.ENGINE_KV_USED.values()
        losses = names.ENGINE_LOSSES.counts()
        for member in self._engines.members.values():
            for name in STATES:
                state.add_metric([member.name, name], name == member.state)
            sessions.add_metric([member.name], len(member.link.sessions))
            losses.add_metric([member.name], member.link.counters.losses)
            stats = member.link.stats
            if stats is not None and stats.kv_blocks_total:
                kv_used.add_metric([member.name], stats.kv_blocks_used / stats.kv_blocks_total)
        moved = names.SESSIONS_MOVED.counts()
        moved.add_metric([], self._engines.moved)
        yield from (state, sessions, kv_used, losses, moved)
