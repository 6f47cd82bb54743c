"""Turns on their way to a collector: kept until their sound was heard, then handed to a thread.

    record ─▶ waits `SETTLE_S` for later revisions ─▶ queue ─▶ thread ─▶ OpenTelemetry's SDK

Bounds: `WAITING_MAX` turns that wait, of which the oldest then waits no longer; `QUEUE_MAX` in the
queue, beyond which turns are dropped, counted and logged once. A collector that does not answer
costs the loop nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from headstart.gateway.errors import ConfigError
from headstart.gateway.runtime import tasks
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.telemetry.turn_record import TurnRecord
from headstart.gateway.tracing.turn_trace import TraceSpan, trace_of

log = logging.getLogger("headstart.traces")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
HTTP = "http/protobuf"

SETTLE_S = 3.0  # an answer's playout is reported in this time
WAITING_MAX = 256
QUEUE_MAX = 256
CLOSE_WAIT_S = 2.0


class Sender(Protocol):
    """Sends one turn's spans; on the thread."""

    def send(self, root: TraceSpan, wall_minus_monotonic_ns: int) -> None:
        """Add a trace to those that are to be sent. Does not wait for the collector."""

    def close(self) -> None:
        """Send what is left, if the collector takes it."""


def from_environment(environ: Mapping[str, str]) -> Traces | None:
    """None where no collector is named, or the extra is not installed, which is logged. Raises
    ConfigError for a protocol that is not ours."""
    endpoint = environ.get(ENDPOINT, "").strip()
    if not endpoint:
        return None
    protocol = environ.get(PROTOCOL, "").strip() or HTTP
    if protocol != HTTP:
        expected = f"expected {HTTP} (a collector's port 4318)"
        raise ConfigError([f"{PROTOCOL}: {expected}, got {protocol}"])
    if importlib.util.find_spec("opentelemetry") is None:
        log.warning("%s is set, but no traces are sent: install headstart[otel]", ENDPOINT)
        return None

    def connect() -> Sender:
        from headstart.gateway.tracing.otlp import OtlpSender  # takes half a second to import

        return OtlpSender(endpoint)

    return Traces(connect)


class Traces(Observer):
    """All on the loop: `start` before the first turn, `close` at the end."""

    def __init__(
        self, connect: Callable[[], Sender], settle_s: float = SETTLE_S, queued: int = QUEUE_MAX
    ) -> None:
        self.dropped = 0
        self._connect = connect
        self._settle_s = settle_s
        self._waiting: dict[str, TurnRecord] = {}
        self._queue: queue.Queue[tuple[TurnRecord, int] | None] = queue.Queue(queued)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def turn(self, record: TurnRecord) -> None:
        name = record.response_id
        if name in self._waiting:
            self._waiting[name] = record
        elif record.revision == 1:
            self._waiting[name] = record
            settled = tasks.guard(self._settled, "traces", tasks.nothing_depends_on_it)
            asyncio.get_running_loop().call_later(self._settle_s, settled, name)
            if len(self._waiting) > WAITING_MAX:
                self._settled(next(iter(self._waiting)))

    def _settled(self, name: str) -> None:
        record = self._waiting.pop(name, None)
        if record is None:
            return
        try:
            self._queue.put_nowait((record, time.time_ns() - time.monotonic_ns()))
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("traces are dropped: %d turns wait to be sent", self._queue.maxsize)

    async def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """What waits is sent, unless that takes longer than `wait_s`."""
        for name in list(self._waiting):
            self._settled(name)
        if self._thread.is_alive():
            await asyncio.to_thread(self._end, wait_s)

    def _end(self, wait_s: float) -> None:
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=wait_s)
            self._thread.join(wait_s)

    def _run(self) -> None:
        """The thread. It outlives whatever a turn or the SDK raises."""
        try:
            sender = self._connect()
        except Exception as error:
            tasks.report("traces", error)
            return  # the queue fills, and what comes is dropped
        while (item := self._queue.get()) is not None:
            record, offset_ns = item
            try:
                sender.send(trace_of(record), offset_ns)
            except Exception as error:
                tasks.report("traces", error)
        try:
            sender.close()
        except Exception as error:
            tasks.report("traces", error)
