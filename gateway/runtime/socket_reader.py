"""Reads a ZeroMQ socket and its monitor on the event loop.

Both are watched with `loop.add_reader` and read without awaiting. This works on asyncio and uvloop
and costs a fraction of `zmq.asyncio`'s future per message. One callback reads at most
`DRAIN_MESSAGES`, so that a flood cannot block the loop. ZeroMQ's file descriptor is edge-triggered,
so after sends the socket is read again, once per turn of the loop (`sent`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from headstart.gateway.runtime import tasks

DRAIN_MESSAGES = 256
NOBLOCK = int(zmq.NOBLOCK)

Message = TypeVar("Message")


class SocketReader(Generic[Message]):
    """`receive` takes one message off `socket` and raises `zmq.Again` if there is none; `deliver`
    is called with it, `monitored` with what `monitor` reports (`zmq.utils.monitor`)."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        monitor: zmq.Socket[bytes],
        receive: Callable[[], Message],
        deliver: Callable[[Message], None],
        monitored: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._socket, self._monitor = socket, monitor
        self._receive = receive
        # What fails at one message costs none of those behind it.
        self._deliver = tasks.guard(deliver, "engine socket", tasks.nothing_depends_on_it)
        self._monitored = tasks.guard(monitored, "engine socket", tasks.nothing_depends_on_it)
        self._drain = tasks.guard(self.drain, "engine socket", tasks.nothing_depends_on_it)
        self._read_monitor = tasks.guard(
            self.read_monitor, "engine socket", tasks.nothing_depends_on_it
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._will_read = False  # scheduled to read, whatever the descriptor says

    def start(self) -> None:
        """Read from now on. Call on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._drain)
        self._loop.add_reader(self._monitor.fileno(), self._read_monitor)
        self._loop.call_soon(self._read_monitor)
        self._loop.call_soon(self._drain)

    def stop(self) -> None:
        """Deliver nothing more. Call before the sockets are closed."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_reader(self._monitor.fileno())
            self._loop = None

    def sent(self) -> None:
        """Call after each send: sending can use up the descriptor's edge, and a message that has
        arrived would then not wake the loop."""
        if self._loop is not None and not self._will_read:
            self._will_read = True
            self._loop.call_soon(self._drain)

    def drain(self) -> None:
        """Deliver what waits, `DRAIN_MESSAGES` at most; the rest in the loop's next turn."""
        self._will_read = False
        for _ in range(DRAIN_MESSAGES):
            if self._loop is None:
                return  # stopped since this was scheduled, or by the last message
            try:
                message = self._receive()
            except zmq.Again:
                return
            self._deliver(message)
        if self._loop is not None:
            self._loop.call_soon(self._drain)

    def read_monitor(self) -> None:
        """Report what the monitor has seen."""
        while self._loop is not None and _is_readable(self._monitor):
            self._monitored(recv_monitor_message(self._monitor, zmq.NOBLOCK))


def _is_readable(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
