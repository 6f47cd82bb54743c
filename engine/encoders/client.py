"""An engine's side of an encoder process: one picture, or a few of one batch, at a time.

A call sends the pixels and waits for the embeddings. Each thread of the engine has a connection of
its own, so a picture that is encoded within a step does not wait for those beside it.

    not there ─▶ `EncoderAway`: at once if it was lost `AWAY_WAIT_S` ago, or within a step;
                 else as soon as that is over
    silent    ─▶ `EncoderTooSlow` after the limit, and the encoder is told to forget it
    its owner is gone ─▶ `cancel`: the call ends, and the encoder is told to forget it

An answer that names another `identity` is never taken. A picture that was under way when the
encoder died is not sent again: it may be what it died of.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zmq
from zmq.utils.monitor import recv_monitor_message

from headstart.engine.api.keys import ENGINES, REFUSED_RETRY_S, unlock
from headstart.engine.encoders.errors import (
    BY_CODE,
    EncoderAway,
    EncoderFailed,
    EncoderStopped,
    EncoderTooSlow,
    WrongEncoder,
)
from headstart.engine.encoders.messages import (
    BadMessage,
    Cancel,
    Encode,
    Encoded,
    Failed,
    Picture,
    Size,
    Unit,
    header,
    read_reply,
)

log = logging.getLogger("headstart.engine")

AWAY_WAIT_S = 20.0
"""How long pictures wait for an encoder process that is being started again."""
STEP_WAIT_S = 2.0  # the same within a step, before the first connection
STEP_LIMIT_S = 10.0  # of a picture within a step, which holds up every session
HEARTBEAT_S = 2.0
SILENT_S = 10.0
"""Without a sign of its process, a connection counts as lost; being at work on a picture is one."""
KEPT_MESSAGES = 8

Rgb = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class UnitOfPictures:
    """Pictures [height, width, 3] that are encoded together, for one share domain."""

    pictures: Sequence[Rgb]
    domain: bytes = b""


class EncoderClient:
    """The encoder process at `endpoint`, for the engine `name`. `keys`: this host's folder of them
    (`headstart.engine.api.keys`). Raises `BadKeys`.

    `encode` may be called in several threads; the one that made it counts as the engine's own.
    """

    def __init__(
        self,
        endpoint: str,
        identity: str,
        name: str = "engine",
        keys: Path | None = None,
        limit_s: float = 60.0,
    ) -> None:
        self.endpoint, self.identity, self.name = endpoint, identity, name
        self._keys, self._limit_s = keys, limit_s
        self._context = zmq.Context()
        self._own = threading.get_ident()
        self._connections: dict[int, _Connection] = {}
        self._connection(STEP_WAIT_S)  # reports bad keys now

    def encode(
        self, units: Sequence[UnitOfPictures], *, still: bool = False
    ) -> list[list[Picture] | None]:
        """The embeddings of each unit; None for a still that the model treats like a frame. Raises
        an `EncoderFault`."""
        if threading.get_ident() == self._own:
            connection = self._connection(STEP_WAIT_S)
            return connection.call(units, still, min(self._limit_s, STEP_LIMIT_S), away_wait_s=0)
        return self._connection(AWAY_WAIT_S).call(units, still, self._limit_s, AWAY_WAIT_S)

    def cancel(self) -> None:
        """End the calls of all other threads: nobody wants their pictures any more."""
        for thread, connection in list(self._connections.items()):
            if thread != threading.get_ident():
                connection.cancel()

    def wait(self, tick: Callable[[], None], most_s: float) -> bool:
        """Wait for the first connection; `tick` is called meanwhile. False: there is none."""
        connection, until_s = self._connection(STEP_WAIT_S), time.monotonic() + most_s
        while not connection.is_up and time.monotonic() < until_s:
            tick()
            connection.look(0.2)
        return connection.is_up

    def close(self) -> None:
        """No call may be under way."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._context.term()

    def _connection(self, first_wait_s: float) -> _Connection:
        thread = threading.get_ident()
        if thread not in self._connections:
            self._connections[thread] = _Connection(self, first_wait_s)
        return self._connections[thread]

    def connect(self) -> zmq.Socket[bytes]:
        """A new socket that connects to the encoder."""
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.set_hwm(KEPT_MESSAGES)
        socket.linger = 0
        # A host that vanishes closes no connection.
        socket.set(zmq.HEARTBEAT_IVL, int(HEARTBEAT_S * 1e3))
        socket.set(zmq.HEARTBEAT_TIMEOUT, int(SILENT_S * 1e3))
        socket.set(zmq.IMMEDIATE, 1)  # do not queue for an encoder that is not connected
        socket.set(zmq.RECONNECT_IVL, 50)
        socket.set(zmq.RECONNECT_IVL_MAX, 1_000)
        try:
            unlock(socket, self.endpoint, self._keys, server="encoder")
        except BaseException:
            socket.close()
            raise
        return socket


class _Connection:
    """One thread's."""

    def __init__(self, client: EncoderClient, first_wait_s: float) -> None:
        self.is_up = False
        self._client = client
        self._numbers = count(1)
        self._lost_s = time.monotonic()
        self._first_wait_s = first_wait_s
        self._was_up = False
        self._told_wrong = self._told_refused = False
        self._retry_s: float | None = None  # when to connect again, after a refusal
        self._cancelled = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._socket = client.connect()
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._poller = zmq.Poller()
        for each in (self._socket, self._monitor, self._wake):
            self._poller.register(each, zmq.POLLIN)
        self._socket.connect(client.endpoint)

    def cancel(self) -> None:
        """From another thread."""
        self._cancelled.set()
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        os.close(self._wake)

    def call(
        self, units: Sequence[UnitOfPictures], still: bool, limit_s: float, away_wait_s: float
    ) -> list[list[Picture] | None]:
        self._cancelled.clear()
        self._await_connection(away_wait_s)
        until_s = time.monotonic() + limit_s
        request = self._send(units, still, limit_s)
        while True:
            left_s = until_s - time.monotonic()
            frames = self.look(left_s) if left_s > 0 else []
            if frames:
                answer = self._answer(request, frames)
                if answer is not None:
                    return answer
            elif not self.is_up:
                raise EncoderAway("it ended, or the connection to it did")
            elif self._cancelled.is_set():
                self._forget(request)
                raise EncoderStopped
            elif left_s <= 0:
                self._forget(request)
                raise EncoderTooSlow(f"more than {limit_s:g} s")

    def _await_connection(self, away_wait_s: float) -> None:
        """Raises `EncoderAway`, `EncoderStopped`."""
        wait_s = away_wait_s if self._was_up else max(away_wait_s, self._first_wait_s)
        while self._monitor.poll(0):
            self._note(recv_monitor_message(self._monitor)["event"])
        while not self.is_up:
            left_s = self._lost_s + wait_s - time.monotonic()
            if self._cancelled.is_set():
                raise EncoderStopped
            if left_s <= 0:
                raise EncoderAway
            self.look(left_s)

    def look(self, wait_s: float) -> list[zmq.Frame]:
        """Take note of one thing that happens within `wait_s`. An encoder's message, if it is
        that."""
        if self._retry_s is not None:
            wait_s = min(wait_s, REFUSED_RETRY_S)
            if time.monotonic() > self._retry_s:
                self._connect_again()
        ready = dict(self._poller.poll(max(0, int(wait_s * 1e3))))
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        if self._socket in ready:  # first: an answer that came before the end counts
            return self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        if self._monitor in ready:
            self._note(recv_monitor_message(self._monitor)["event"])
        return []

    def _connect_again(self) -> None:
        """After a refusal, which ZeroMQ takes for the last word; the key may have come since."""
        self._retry_s = None
        with suppress(zmq.ZMQError):  # it may have gone with its connection
            self._socket.disconnect(self._client.endpoint)
        self._socket.connect(self._client.endpoint)

    def _note(self, event: Any) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.is_up = self._was_up = True
            self._told_refused = False
            return
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            if not self._told_refused:
                self._told_refused = True
                log.error(
                    "the encoder process at %s does not accept this engine's key: copy it to the "
                    "%s/ of its keys; trying again each %.0f s",
                    *(self._client.endpoint, ENGINES, REFUSED_RETRY_S),
                )
            self._retry_s = time.monotonic() + REFUSED_RETRY_S
        if self.is_up:
            log.error("the encoder process is gone: pictures fail until it is back")
            self.is_up, self._lost_s = False, time.monotonic()

    def _send(self, units: Sequence[UnitOfPictures], still: bool, limit_s: float) -> Encode:
        sizes = [
            Unit(tuple(Size(*rgb.shape[:2]) for rgb in unit.pictures), unit.domain)
            for unit in units
        ]
        client = self._client
        request = Encode(
            next(self._numbers), client.identity, client.name, tuple(sizes), still, limit_s * 1e3
        )
        content = [np.ascontiguousarray(rgb).data for unit in units for rgb in unit.pictures]
        try:
            self._socket.send_multipart([header(request), *content], zmq.NOBLOCK)
        except zmq.Again:  # lost just now
            raise EncoderAway from None
        return request

    def _forget(self, request: Encode) -> None:
        with suppress(zmq.Again):
            self._socket.send_multipart([header(Cancel(request.number))], zmq.NOBLOCK)

    def _answer(
        self, request: Encode, frames: Sequence[zmq.Frame]
    ) -> list[list[Picture] | None] | None:
        """None: it is the answer to something else. Raises an `EncoderFault`."""
        try:
            reply, pictures = read_reply([frame.buffer for frame in frames])
        except BadMessage as error:
            log.error("the encoder process sent what is no answer: %s", error)
            raise EncoderFailed(str(error)) from error
        if reply.number != request.number:
            return None  # to a call that ended before
        if isinstance(reply, Failed):
            raise self._fault(reply)
        assert isinstance(reply, Encoded)
        if reply.identity != request.identity:
            raise self._wrong(reply.identity)
        if len(pictures) != len(request.units):
            raise EncoderFailed(f"{len(request.units)} units were sent, {len(pictures)} came back")
        return pictures

    def _fault(self, reply: Failed) -> Exception:
        if reply.code == WrongEncoder.code:
            return self._wrong(reply.detail)
        return BY_CODE.get(reply.code, EncoderFailed)(reply.detail)

    def _wrong(self, theirs: str) -> WrongEncoder:
        if not self._told_wrong:
            self._told_wrong = True
            log.error(
                "the encoder process encodes with %s, this engine's model needs %s: start both "
                "with the same model, settings and version",
                theirs,
                self._client.identity,
            )
        return WrongEncoder()
