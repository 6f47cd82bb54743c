"""A resumable channel: the runner's channel over one connection after another.

    runner ⇄ ResumableChannel ⇄ connection (WebSocket or WebRTC data channel), until it breaks
                  ⋮  detached for at most `keep_s`: outgoing events wait in the runner's queue
                  ⇄ next connection, which first gets the events it may have missed

If the session did not ask for resumption, the channel ends with its first connection. Across
connections, delivery is in order and at least once: the client names the last event it received and
gets all later ones. Bounds: the log of sent events holds `LOG_EVENTS` and `LOG_BYTES`, dropping the
oldest first. While detached, the runner's queue is the bound, and a session that exceeds it is
shed.

"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headstart.gateway.connection.interfaces import Connection, TryInline
from headstart.gateway.runtime import tasks
from headstart.gateway.session.actions import Hangup

log = logging.getLogger("headstart.resume")

LOG_EVENTS = 512
LOG_BYTES = 2 * 1024 * 1024
ASK_WAIT_S = 1.5
"""How long a live connection may take to respond when another one claims its session, in s."""


class _Head(msgspec.Struct):
    """The event field that the log is searched by."""

    event_id: str = ""


_head = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True)
class _Sent:
    event_id: str
    text: str
    size_bytes: int


class EventLog:
    """The newest sent events."""

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, text: str) -> None:
        self._sent.append(_Sent(_head.decode(text).event_id, text, len(text)))
        self._bytes += len(text)
        while len(self._sent) > LOG_EVENTS or self._bytes > LOG_BYTES:
            self._bytes -= self._sent.popleft().size_bytes

    def behind(self, event_id: str) -> list[str] | None:
        """The events sent after that event; it and the earlier ones are dropped from the log. None:
        the id is not in the log, and the log is cleared."""
        if event_id not in (sent.event_id for sent in self._sent):
            self._sent.clear()
            self._bytes = 0
            return None
        while (first := self._sent.popleft()).event_id != event_id:
            self._bytes -= first.size_bytes
        self._bytes -= first.size_bytes
        return [sent.text for sent in self._sent]


class SessionOver(Exception):
    """The session has ended and cannot be resumed."""


class ResumableChannel:
    """A `Channel` for the runner. Created on the running loop with its first connection attached.

    `keeps`: called when a connection breaks; whether the session may wait for another one.
    `on_expired`: called when none came in time.

    """

    def __init__(
        self,
        connection: Connection,
        keeps: Callable[[], bool],
        keep_s: float,
        on_expired: Callable[[], None] = lambda: None,
        on_detached: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_over = False
        self._connection: Connection | None = connection
        self._keeps = keeps
        self._keep_s = keep_s
        self._on_expired = on_expired
        self._on_detached = on_detached
        self._claimed = False
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._log = EventLog()
        self._again: deque[str] = deque()  # logged events to send again

    @property
    def is_detached(self) -> bool:
        return self._connection is None and not self.is_over

    # --- for the runner
    # ----------------------------------------------------------------------------

    async def receive(self, try_inline: TryInline | None = None) -> str | int | None:
        """The client's next message, over any connection; None when the channel is over."""
        while (
            connection := self._connection or await self._attached()
        ) is not None and not self.is_over:
            message = await connection.receive(try_inline)
            if message is not None:
                return message
            self._broken(connection)
        return None

    @property
    def unread_since_ns(self) -> int | None:
        return (
            None if self._connection is None or self.is_over else self._connection.unread_since_ns
        )

    async def send(self, text: str) -> bool:
        """Returns once `text` was sent, possibly over a later connection. False: the channel is
        over."""
        while (connection := await self._attached()) is not None:
            if not (await self._send_again(connection) and await connection.send(text)):
                await self._until_noticed(connection)
            elif connection is self._connection:
                if self._keeps():
                    self._log.add(text)
                return True
            # else: the connection was given up meanwhile; the next one gets the text again
        return False

    def try_send(self, data: bytes) -> bool:
        connection = self._connection
        if connection is None or self.is_over or self._again or not connection.try_send(data):
            return False
        if self._keeps():
            self._log.add(data.decode())
        return True

    async def close(self, hangup: Hangup) -> None:
        if self._connection is not None:
            await self._connection.close(hangup)
        self.give_up()

    def give_up(self) -> None:
        """End the channel: no more messages in either direction, and nothing is kept."""
        self.is_over = True
        self._log, self._again = EventLog(), deque()
        self._stop_timer()
        self._changed.set()

    # --- for those who bring links ---------------------------------------------------------------

    async def carry(self, connection: Connection) -> None:
        """Returns when the attached `connection` no longer carries the session."""
        try:
            while self._connection is connection and not self.is_over:
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._broken(connection)

    async def claim(self) -> bool:
        """Reserve the channel for a new connection until `attach` or `release`. False: it has a
        live connection (checked if needed), another claim is in progress, or it is over."""
        if self.is_over or self._claimed:
            return False
        self._claimed = True
        try:
            connection = self._connection
            if connection is not None and not await connection.answers(ASK_WAIT_S):
                log.info("a link that does not answer is given up for a new one")
                connection.cut()
                self._broken(connection)
        except BaseException:  # the claiming client has gone meanwhile
            self.release()
            raise
        self._claimed = self.is_detached
        if self._claimed:
            self._stop_timer()
        return self._claimed

    def release(self) -> None:
        """Give up the claim. Does nothing without one."""
        claimed, self._claimed = self._claimed, False
        if claimed and self.is_detached:
            self._start_timer()

    def attach(self, connection: Connection, last_event_id: str | None) -> int | None:
        """After a `claim`, continue over `connection`. The events after `last_event_id` are sent
        again first: returns their number, or None if that id is no longer in the log. Raises
        `SessionOver`: a session may end at any time, also while a call to it is being answered."""
        if self.is_over:
            self._claimed = False
            raise SessionOver
        assert self._claimed
        assert self._connection is None
        missed = self._log.behind(last_event_id or "")
        self._again = deque(missed or ())
        self._claimed = False
        self._connection = connection
        self._changed.set()
        return None if missed is None else len(missed)

    # --- within ----------------------------------------------------------------------------------

    async def _send_again(self, connection: Connection) -> bool:
        again = self._again
        while again:
            if not await connection.send(again[0]):
                return False
            again.popleft()
        return True

    async def _until_noticed(self, connection: Connection) -> None:
        """Sending failed. Only the reader learns whether the client closed the connection, so leave
        it to detect the end, unless that no longer matters."""
        if not self._keeps():
            self._broken(connection)
        while self._connection is connection and not self.is_over:
            self._changed.clear()
            await self._changed.wait()

    async def _attached(self) -> Connection | None:
        while self._connection is None and not self.is_over:
            self._changed.clear()
            await self._changed.wait()
        return None if self.is_over else self._connection

    def _broken(self, connection: Connection) -> None:
        if connection is not self._connection:
            return  # already handled, or replaced
        self._connection = None
        if connection.finished or not self._keeps():
            self.give_up()
        elif not self.is_over:
            log.info("a session has lost its client and is kept for %.0f s", self._keep_s)
            self._start_timer()
            self._on_detached()
        self._changed.set()

    def _start_timer(self) -> None:
        self._stop_timer()
        expire = tasks.guard(self._expire, "resume expiry", tasks.nothing_depends_on_it)
        self._timer = asyncio.get_running_loop().call_later(self._keep_s, expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.give_up()
        self._on_expired()
