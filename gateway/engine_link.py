"""The gateway's link to one engine: `engine.api` messages over ZeroMQ.

    WAITING ──loading──▶ LOADING ──ready──▶ READY ──silence, disconnect, overflow──▶ LOST
       └────────────────────ready─────────────▶▲◀─────────ready, or it responds again───┘

A `Wire` carries the messages: a bound DEALER of its own (`DealerWire`), or a share of the ROUTER
that engines from elsewhere connect to (`headstart.gateway.engines.port`). An engine's instants are
those of its machine's clock; for another machine's they are translated (`ClockOffset`).

Bounds: `HIGH_WATER_MESSAGES` in each direction. When the engine leaves that many commands unread it
is declared LOST: dropping a single command would make gateway and engine disagree about a
conversation, so all sessions are opened anew instead. Commands are not sent, but counted, while it
is not READY; the sessions are restored from the gateway's records later.

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec
import zmq

from headstart.engine import api
from headstart.engine.api.keys import machine_id
from headstart.gateway.engine_address import Address
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.private_folder import private_folder
from headstart.gateway.runtime.socket_reader import NOBLOCK, SocketReader

log = logging.getLogger("headstart.engine_link")

HIGH_WATER_MESSAGES = 4096
PING_INTERVAL_S = 1.0
STOOD_STILL_S = 5.0
"""Longer between two heartbeats, or less where an engine is lost sooner, and this process stood
still (a paused machine or container): the engine probably did, too."""
IPC_PATH_BYTES_MAX = 100  # sun_path holds 108 with its terminator; ZeroMQ may append to the name
OFFSET_SAMPLES = 32  # heartbeats, of which the fastest tells the clocks' offset
WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class WireUser(Protocol):
    """What a wire calls, on the loop."""

    @property
    def silent_s(self) -> float:
        """Since it last received something."""

    def is_process(self, incarnation: str) -> bool:
        """Whether this is the process that was ready last (`api.Ready`)."""

    def received(self, data: bytes) -> None: ...

    def connected(self) -> None: ...

    def lost(self, reason: str) -> None: ...


class Wire(Protocol):
    """Carries one engine's messages."""

    endpoint: str

    @property
    def problem(self) -> str:
        """Why no engine can connect; empty: one can."""

    def start(self, user: WireUser) -> None:
        """Deliver what comes from now on. Call on the running loop."""

    def send(self, data: bytes) -> bool:
        """Never blocks. False: the queue is full, or no engine is connected."""

    def check(self, *, forget_old: bool) -> None:
        """Make sure that a new engine can connect; `forget_old`: none is connected now."""

    def forget_old(self) -> None:
        """No engine is connected any more."""

    def close(self) -> None:
        """Deliver nothing more, and free the socket."""


class DealerWire:
    """A bound DEALER for one engine. Raises `zmq.ZMQError` if it cannot be bound."""

    def __init__(self, endpoint: str) -> None:
        self._user: WireUser | None = None
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(HIGH_WATER_MESSAGES)
        self._socket.linger = 0
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(WATCHED)
        self._reader = SocketReader(
            self._socket, self._monitor, self._receive, self._deliver, self._monitored
        )
        try:
            self._address = Address(self._socket, endpoint)
        except zmq.ZMQError:
            self._close_sockets()  # or the interpreter waits for them when it ends
            raise
        self.endpoint = self._address.endpoint

    @property
    def problem(self) -> str:
        return self._address.problem

    def check(self, *, forget_old: bool) -> None:
        if self._address.check() and forget_old:
            self._address.forget_old()

    def forget_old(self) -> None:
        self._address.forget_old()

    def start(self, user: WireUser) -> None:
        self._user = user
        self._reader.start()

    def close(self) -> None:
        self._reader.stop()
        self._address.remove()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def send(self, data: bytes) -> bool:
        try:
            self._socket.send(data, NOBLOCK)
        except zmq.Again:
            return False
        self._reader.sent()
        return True

    def _receive(self) -> bytes:
        return self._socket.recv(NOBLOCK)

    def _deliver(self, data: bytes) -> None:
        assert self._user is not None
        self._user.received(data)

    def _monitored(self, monitored: Mapping[str, object]) -> None:
        assert self._user is not None
        if monitored["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._user.connected()
        elif monitored["event"] == zmq.EVENT_DISCONNECTED:
            self._reader.drain()  # what it sent before it disconnected still counts
            self._user.lost("its connection closed")


class ClockOffset:
    """How far an engine's clock is ahead of ours, in ns: 0 on this machine. On another one it is
    estimated from heartbeats: the engine's time lies between a ping and its answer, and the fastest
    of the newest answers leaves the least room for error (as in NTP's clock filter)."""

    def __init__(self) -> None:
        self.ns = 0
        self._is_ours = True
        self._samples: deque[tuple[int, int]] = deque(maxlen=OFFSET_SAMPLES)

    def machine(self, name: str) -> None:
        """The engine's machine (`machine_id`). Unknown: taken for ours."""
        self._is_ours = name in ("", machine_id())
        self._samples.clear()
        self.ns = 0

    def answered(self, stats: api.Stats, now_ns: int) -> None:
        if self._is_ours or not stats.now_ns:
            return
        way_ns = now_ns - stats.ping_sent_ns
        self._samples.append((way_ns, stats.now_ns - (stats.ping_sent_ns + now_ns) // 2))
        self.ns = min(self._samples)[1]

    def to_engine(self, command: api.Command) -> api.Command:
        if isinstance(command, api.Audio):
            return msgspec.structs.replace(command, received_ns=command.received_ns + self.ns)
        return command

    def from_engine(self, event: api.Event) -> api.Event:
        if isinstance(event, api.Delta):
            at_ns = event.at_ns - self.ns
            return msgspec.structs.replace(event, at_ns=at_ns, spans=self._spans(event.spans))
        if isinstance(event, api.Call):
            return msgspec.structs.replace(event, spans=self._spans(event.spans))
        return event

    def _spans(self, spans: tuple[api.Span, ...]) -> tuple[api.Span, ...]:
        return tuple(
            api.Span(span.stage, span.start_ns - self.ns, span.end_ns - self.ns) for span in spans
        )


class LinkState(StrEnum):
    """How far the engine at the other end is."""

    WAITING = "waiting"  # no engine has connected yet
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"


class EngineListener(Protocol):
    """One session's side of the link. All methods are called on the loop and must not block."""

    def engine_event(self, event: api.Event) -> None: ...

    def engine_lost(self) -> None: ...

    def engine_ready(self, ready: api.Ready) -> None: ...


@dataclass(slots=True)
class LinkCounters:
    """Counts of messages since the gateway started."""

    commands: int = 0
    events: int = 0
    commands_not_sent: int = 0  # given while the engine was not ready
    events_stale: int = 0  # of sessions that no longer exist
    events_undecodable: int = 0
    losses: int = 0  # READY to LOST


@contextlib.contextmanager
def private_endpoint() -> Iterator[str]:
    """An address that other users cannot connect to, while the context lasts: ipc in a new folder
    of mode 0700 (`private_folder`), or loopback tcp if ipc sockets or a short enough path are not
    available."""
    if not zmq.has("ipc"):
        yield "tcp://127.0.0.1:*"
        return
    with private_folder() as folder:
        path = folder / "engine.sock"
        short = len(os.fsencode(path)) <= IPC_PATH_BYTES_MAX
        yield f"ipc://{path}" if short else "tcp://127.0.0.1:*"


def shared_endpoint() -> str:
    """The default address of one user's `headstart engine` and `headstart web`.

    Raises `PermissionError` if another user owns the folder or can write in it.

    """
    folder = Path(tempfile.gettempdir()) / f"headstart-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} is not ours alone: expected our own folder, mode 0700")
    return f"ipc://{folder / 'engine.sock'}"


class LinkObserver:
    """Callbacks for the process that owns the link. The base class does nothing."""

    def engine_loading(self, loading: api.Loading) -> None:
        """Progress of the start-up."""

    def engine_ready(self, ready: api.Ready) -> None:
        """The engine accepts sessions."""

    def engine_lost(self, reason: str) -> None:
        """The engine was there, and is not any more."""

    def engine_draining(self) -> None:
        """It takes no more sessions."""

    def engine_stats(self, stats: api.Stats) -> None:
        """A heartbeat was answered."""

    def engine_stalled(self, reason: str) -> None:
        """The engine is lost although its process may be alive: restart it."""


def _notify(call: Callable[..., None], *what: object) -> None:
    """Call one listener. Its failure is reported, and the other listeners are still called. A
    session that missed `engine_ready` would never be opened."""
    tasks.guard(call, "engine link", tasks.nothing_depends_on_it)(*what)


class EngineLink:
    """Owns one engine's wire and state, and the routes from session ids to listeners. `wire`: a
    `DealerWire` at an address, or one that is there already."""

    def __init__(self, wire: str | Wire, lost_after_s: float = 30.0, name: str = "engine") -> None:
        self.name = name
        self.state = LinkState.WAITING
        self.is_draining = False
        """It takes no new sessions, and ends when its last one is gone."""
        self._reason = "the engine has not started yet"
        self.loading: api.Loading | None = None
        self.ready: api.Ready | None = None
        self.stats: api.Stats | None = None
        self.counters = LinkCounters()
        self.observer = LinkObserver()
        self._incarnation = uuid.uuid4().hex
        self._lost_after_ns = int(lost_after_s * 1e9)
        # Halfway from a heartbeat on time to one as late as an engine may be silent.
        halfway_s = PING_INTERVAL_S + (lost_after_s - PING_INTERVAL_S) / 2
        self._stood_still_ns = int(min(STOOD_STILL_S, halfway_s) * 1e9)
        self._last_heard_ns = self._last_beat_ns = time.monotonic_ns()
        self._listeners: dict[str, EngineListener] = {}
        self._left_behind: set[str] = set()  # sessions that a lost engine may still hold
        self._clock = ClockOffset()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wire = DealerWire(wire) if isinstance(wire, str) else wire
        self.endpoint = self._wire.endpoint

    @property
    def is_ready(self) -> bool:
        return self.state is LinkState.READY

    @property
    def reason(self) -> str:
        """Why it is not READY, and why no other engine can connect, if that is so."""
        problem = "" if self.is_ready else self._wire.problem
        return "; ".join(filter(None, (self._reason, problem)))

    @property
    def sessions(self) -> dict[str, EngineListener]:
        """Its sessions' listeners, by session."""
        return self._listeners

    @property
    def silent_s(self) -> float:
        """Since it was heard."""
        return (time.monotonic_ns() - self._last_heard_ns) / 1e9

    def is_process(self, incarnation: str) -> bool:
        """Whether this is the process that was ready last."""
        return self.ready is not None and self.ready.incarnation == incarnation

    def check_address(self) -> None:
        """Make sure that a new engine can connect."""
        self._wire.check(forget_old=self.state in (LinkState.WAITING, LinkState.LOST))

    def start(self) -> None:
        """Read and ping from now on. Call on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._last_heard_ns = self._last_beat_ns = time.monotonic_ns()
        self._wire.start(self)
        self._heartbeat()

    def close(self) -> None:
        """Stop reading and close the wire."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = None
        self._wire.close()

    def attach(self, session_id: str, listener: EngineListener) -> None:
        self._listeners[session_id] = listener

    def detach(self, session_id: str) -> None:
        listener = self._listeners.pop(session_id, None)
        if listener is not None and self.state is LinkState.LOST:
            self._left_behind.add(session_id)

    def send(self, command: api.Command) -> bool:
        """Send one command; never blocks. False: not sent, because the engine is not READY."""
        if self.state is not LinkState.READY:
            self.counters.commands_not_sent += 1
            return False
        if not self._send(self._clock.to_engine(command) if self._clock.ns else command):
            # Deferred: the caller is in the middle of carrying out a session's actions.
            assert self._loop is not None
            stalled = tasks.guard(self._stalled, "engine link", tasks.nothing_depends_on_it)
            self._loop.call_soon(
                stalled, f"{HIGH_WATER_MESSAGES} commands are waiting to be read by it"
            )
            return False
        self.counters.commands += 1
        return True

    def lost(self, reason: str) -> None:
        """The engine is gone or unusable. Sessions are notified once; further calls do nothing."""
        was_ready = self.state is LinkState.READY
        if self.state is LinkState.LOST:
            return
        self._set_state(LinkState.LOST, reason)
        self.loading = None
        self._wire.forget_old()
        if not was_ready:
            return
        self.counters.losses += 1
        _notify(self.observer.engine_lost, reason)
        for listener in list(self._listeners.values()):
            _notify(listener.engine_lost)

    def give_up(self, reason: str) -> None:
        """The engine is gone, and will not be started again."""
        self.lost(reason)
        self._reason = reason

    # --- from the loop ---------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        assert self._loop is not None
        beat = tasks.guard(self._heartbeat, "engine link", tasks.nothing_depends_on_it)
        self._timer = self._loop.call_later(PING_INTERVAL_S, beat)
        now_ns = time.monotonic_ns()
        if now_ns - self._last_beat_ns > self._stood_still_ns:
            self._last_heard_ns = now_ns  # it has had no time to speak
        self._last_beat_ns = now_ns
        self.check_address()
        # The queue is full or no engine is connected: the silence limit below detects it.
        self._send(api.Ping(now_ns, self._incarnation))
        silence_ns = now_ns - self._last_heard_ns
        if self.state is LinkState.READY and silence_ns > self._lost_after_ns:
            self._stalled(f"it has been silent for {silence_ns / 1e9:.1f} s")

    def _send(self, command: api.Command) -> bool:
        return self._wire.send(api.encode(command))

    def connected(self) -> None:
        """For the wire: an engine has connected."""
        log.debug("an engine connected")
        self._send(api.Ping(time.monotonic_ns(), self._incarnation))

    def received(self, data: bytes) -> None:
        """For the wire: a message has come."""
        self._last_heard_ns = time.monotonic_ns()
        self.counters.events += 1
        try:
            event = api.decode_event(data)
        except msgspec.DecodeError as error:
            self.counters.events_undecodable += 1
            log.error("the engine sent %d bytes that are no event: %s", len(data), error)
            return
        match event:
            case api.Loading():
                self._on_loading(event)
            case api.Ready():
                self._on_ready(event)
            case api.Stats():
                self._on_stats(event)
            case api.Draining():
                self._on_draining()
            case _:
                listener = self._listeners.get(event.session)
                if listener is None or self.state is not LinkState.READY:
                    self.counters.events_stale += 1
                else:
                    event = self._clock.from_engine(event) if self._clock.ns else event
                    _notify(listener.engine_event, event)

    def _on_loading(self, event: api.Loading) -> None:
        if self.state is LinkState.READY:
            self.lost("it started again")
        self.loading = event
        if self.state is not LinkState.LOADING:
            self._set_state(LinkState.LOADING, f"it is loading: {event.what}")
        _notify(self.observer.engine_loading, event)

    def _on_ready(self, ready: api.Ready) -> None:
        if self.state is LinkState.READY:
            if self.is_process(ready.incarnation):
                return  # it repeats this after each handshake
            self.lost("it started again")
        self._become_ready(ready)

    def _on_draining(self) -> None:
        if self.state is LinkState.READY and not self.is_draining:
            log.info("%s drains: it takes no new sessions", self.name)
            self.is_draining = True
            _notify(self.observer.engine_draining)

    def _on_stats(self, stats: api.Stats) -> None:
        self.stats = stats
        self._clock.answered(stats, time.monotonic_ns())
        _notify(self.observer.engine_stats, stats)
        known = self.ready is not None and stats.incarnation == self.ready.incarnation
        if self.state is LinkState.LOST and known:
            assert self.ready is not None
            self._become_ready(self.ready)

    def _become_ready(self, ready: api.Ready) -> None:
        same = self.is_process(ready.incarnation)
        self.ready = ready
        self.loading = None
        self.is_draining = self.is_draining and same
        self._clock.machine(ready.machine)
        self._set_state(LinkState.READY, "")
        # Before any `Open`: it closes the sessions of the gateway that was here before us.
        self._send(api.Ping(time.monotonic_ns(), self._incarnation))
        left_behind, self._left_behind = self._left_behind, set()
        if same:  # it was only silent, and still holds sessions that have ended or will be opened
            # again, here or at another engine: the observer may move them.
            for session_id in left_behind | self._listeners.keys():
                self.send(api.Close(session=session_id))
        _notify(self.observer.engine_ready, ready)
        for listener in list(self._listeners.values()):
            _notify(listener.engine_ready, ready)

    def _stalled(self, reason: str) -> None:
        if self.state is LinkState.READY:
            self.lost(reason)
            self.observer.engine_stalled(reason)

    def _set_state(self, state: LinkState, reason: str) -> None:
        log.info("%s: %s -> %s%s", self.name, self.state, state, f" ({reason})" if reason else "")
        self.state = state
        self._reason = reason
