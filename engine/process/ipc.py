"""The engine's side of the wire: one ZeroMQ DEALER to the gateway, and the loop around it.

    read what has come ─▶ one step of the engine ─▶ send its events ─▶ again
                           nothing to do: wait for the socket

A restarted gateway does not know that the engine is loaded, so each handshake is answered by
`Ready`.

Bounds: `HIGH_WATER_MESSAGES` each way. Further events are dropped while the gateway does not read;
by then it has given up on this engine, since its pings are answered by the same queue. Without a
ping for `ORPHAN_AFTER_S` the process ends, because nobody else would stop it.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil
import zmq

from headstart.engine import api
from headstart.engine.api.keys import Handshakes, machine_id, unlock
from headstart.engine.chat.accounting import named_counts

if TYPE_CHECKING:  # imports torch, which takes seconds; the gateway is told first
    from headstart.engine.engine import Engine

log = logging.getLogger("headstart.engine")

HIGH_WATER_MESSAGES = 4096
IDLE_WAIT_MS = 200
ORPHAN_AFTER_S = 15.0
STOOD_STILL_S = 10.0
"""Longer between two looks for pings, and the machine may have been paused, gateway and all."""


class GatewayLink:
    """Owns the socket. `pump` answers pings even while the model is loading."""

    def __init__(self, endpoint: str, name: str = "", keys: Path | None = None) -> None:
        """`name`: among the engines of one gateway; `keys`: see `headstart.engine.api.keys`. Raises
        `BadKeys`."""
        self.incarnation = uuid.uuid4().hex
        self.model: api.ModelInfo | None = None
        self.stopping = False
        self.draining = False
        """Set from a signal handler: take no more sessions, and leave when the last one is gone."""
        self.left = False
        """It was drained: its last session is gone, or its gateway is."""
        self._name = name
        self._told_draining = False
        self._met = False  # whether a gateway has completed the handshake
        self._gateway = ""  # which one pings, as far as it says
        self._engine: Engine | None = None
        self._last_ping_s = self._last_look_s = time.monotonic()
        self._steps = 0
        self._process = psutil.Process()
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(HIGH_WATER_MESSAGES)
        self._socket.linger = 0
        unlock(self._socket, endpoint, keys)
        # Do not queue for a gateway that is not connected.
        self._socket.set(zmq.IMMEDIATE, 1)
        self._handshakes = Handshakes(self._socket, endpoint)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._handshakes.monitor, zmq.POLLIN)
        self._socket.connect(endpoint)

    def send(self, event: api.Event) -> None:
        """Send an event, or drop it beyond the high-water mark or before the first handshake."""
        if not self._met:
            return
        try:
            self._socket.send(api.encode(event), zmq.NOBLOCK)
        except zmq.Again:
            log.error("the gateway is not reading: dropped %s", type(event).__name__)

    def loading(self, what: str, done: int, total: int) -> None:
        """Report start-up progress."""
        self.send(api.Loading(what=what, done=done, total=total, engine=self._name))
        self.pump(wait_ms=0)

    def serve(self, engine: Engine, model: api.ModelInfo) -> None:
        """Run until `stopping` is set or the gateway has gone silent."""
        self._engine, self.model = engine, model
        if self._met:
            self.send(self._ready(model))  # otherwise the handshake will
        # Loading may have taken longer than `ORPHAN_AFTER_S`: count from now.
        self._last_ping_s = self._last_look_s = time.monotonic()
        for fd in engine.wake_fds:
            self._poller.register(fd, zmq.POLLIN)
        busy = False
        while not self.stopping:
            self.pump(wait_ms=0 if busy else IDLE_WAIT_MS)
            self._tell_draining()
            if self._orphaned():  # after `pump`, since a long step leaves pings unread
                self.left = self.draining
                break
            was_busy, busy = busy, engine.step()
            self._steps += busy
            if was_busy and not busy:
                engine.check_accounting()
        engine.close()

    def close(self) -> None:
        self._handshakes.close()
        self._socket.close()
        self._context.term()

    def pump(self, wait_ms: int) -> None:
        """Handle all messages that have arrived, waiting up to `wait_ms` for the first."""
        ready = dict(self._poller.poll(wait_ms))
        self._handshakes.retry()
        if self._handshakes.monitor in ready and self._handshakes.read():
            self._met = True
            self._told_draining = False
            if self.model is not None:
                self.send(self._ready(self.model))
        if self._socket not in ready:
            return
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._received(data)

    def _ready(self, model: api.ModelInfo) -> api.Ready:
        return api.Ready(
            incarnation=self.incarnation,
            model=model,
            engine=self._name,
            machine=machine_id(),
            pid=os.getpid(),
        )

    def _tell_draining(self) -> None:
        """Once for each connection. Without a gateway there is nobody to wait for."""
        if not self.draining:
            return
        if not self._met:
            self.stopping = self.left = True
        elif not self._told_draining:
            self._told_draining = True
            self.send(api.Draining())

    def _received(self, data: bytes) -> None:
        try:
            command = api.decode_command(data)
        except msgspec.DecodeError as error:
            log.error("the gateway sent %d bytes that are not a command: %s", len(data), error)
            return
        if isinstance(command, api.Ping):
            self._pong(command)
        elif isinstance(command, api.Leave):
            log.info("the last session is gone: leaving")
            self.stopping = self.left = True
        elif self._engine is not None:
            self._engine.receive(command)
        else:
            log.warning("%s came before the model was loaded", type(command).__name__)

    def _pong(self, ping: api.Ping) -> None:
        self._last_ping_s = time.monotonic()
        if self.model is None or self._engine is None:
            return  # still loading; `Loading` events say so
        if ping.gateway != self._gateway:
            self._gateway = ping.gateway
            if closed := self._engine.close_sessions():
                log.warning("the gateway was started again: closed %d sessions of before", closed)
        self._engine.relieve_pressure()  # idle sessions cause no steps
        totals = self._engine.totals
        pool, accounting, admission = (
            self._engine.pool,
            self._engine.kv_accounting(),
            self._engine.admission,
        )
        self.send(
            api.Stats(
                ping_sent_ns=ping.sent_ns,
                incarnation=self.incarnation,
                sessions=len(self._engine.sessions),
                kv_blocks_used=pool.used_blocks,
                kv_blocks_total=pool.num_blocks,
                rss_bytes=self._process.memory_info().rss,
                pending_prefill_tokens=self._engine.pending_prefill_tokens,
                steps=self._steps,
                kv_blocks_cached=pool.cached_blocks,
                kv_blocks_shared=accounting.shared_blocks,
                kv_tokens=named_counts(accounting.tokens),
                level=admission.level,
                sessions_offloaded=self._engine.sessions_offloaded,
                offloaded_bytes=admission.host.used_bytes,
                offloads=admission.offloads,
                returns=admission.restores,
                sessions_refused=admission.refused_sessions,
                evicted_tokens=totals.evicted,
                speculated_kept=totals.speculated_kept,
                speculated_wasted=totals.speculated_wasted,
                recent_steps=self._engine.steps.take(),
                step_totals=self._engine.steps.totals(),
                llm_server=self._engine.server_totals,
                now_ns=time.monotonic_ns(),
                llm_servers=list(self._engine.parts.backend.status()),
            )
        )

    def _orphaned(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._last_look_s > STOOD_STILL_S:
            self._last_ping_s = now_s
        self._last_look_s = now_s
        silent_s = now_s - self._last_ping_s
        if silent_s <= ORPHAN_AFTER_S:
            return False
        log.error("no ping from the gateway for %.0f s: exiting", silent_s)
        return True
