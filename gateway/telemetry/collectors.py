"""Collectors: metrics that are read off somebody's own counts when the page is asked for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.loop_lag import LoopLag


class CountsCollector(Collector):
    """A counter with one label, or none, from a mapping of counts by the label's value."""

    def __init__(self, family: names.Family, look: Callable[[], Mapping[str, float]]) -> None:
        self._family = family
        self._look = look

    def collect(self) -> Iterable[Metric]:
        family = self._family.counts()
        for value, count in dict(self._look()).items():
            family.add_metric([value] if self._family.labels else [], count)
        yield family


class LagCollector(Collector):
    """The event loop's lag."""

    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag

    def collect(self) -> Iterable[Metric]:
        family = names.LOOP_LAG.distributions()
        family.add_metric([], cumulative(names.SECONDS, self._lag.counts), self._lag.sum_s)
        yield family


class BuildCollector(Collector):
    """Which version runs which model."""

    def __init__(self, model: Callable[[], str]) -> None:
        self._model = model

    def collect(self) -> Iterable[Metric]:
        family = names.BUILD.info()
        version = importlib.metadata.version("headstart")
        family.add_metric([version, self._model()], {})
        yield family


def cumulative(edges: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus's buckets of counts by bucket; the last one, beyond all edges, is +Inf."""
    ends = [*map(floatToGoString, edges), "+Inf"]
    return list(zip(ends, map(float, accumulate(counts)), strict=True))
