"""The address at which engines from elsewhere connect: one bound ROUTER for any number of them.

    engine ──hello (`Loading`, `Ready`)──▶ port ──▶ its `PeerWire` ─▶ EngineLink
                                            └── refused: the name is taken by one that answers

An engine is known by its name: that of its key (`headstart.engine.api.keys`), that which it gives
itself, or both as `key/name`. It keeps its link when it connects again, also as another process.
With keys, ZeroMQ's authentication protocol (ZAP) asks us about each connection; an engine whose
public key is not in the folder gets none. Beyond this machine there is no address without keys.

Bounds: `ENGINES_MAX` names; `HIGH_WATER_MESSAGES` for each peer and direction;
`MESSAGE_BYTES_MAX`, also in a handshake, before its peer is known: beyond it the connection is
closed. An engine that has connected is trusted (docs/security.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from headstart.engine import api
from headstart.engine.api.keys import NAME, Accepted, BadKeys, check_address, own_pair
from headstart.gateway.engine_address import Address
from headstart.gateway.engine_link import HIGH_WATER_MESSAGES, WireUser
from headstart.gateway.errors import ConfigError
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.socket_reader import NOBLOCK, SocketReader

log = logging.getLogger("headstart.engines")

ENGINES_MAX = 256
TAKEN_WITHIN_S = 3.0
"""An engine that was heard within this time holds its name; heartbeats come each second."""
MESSAGE_BYTES_MAX = 4 << 20  # of a frame; an engine's largest events are some KiB
NAME_LOGGED_MAX = 64  # characters of what calls itself an engine
REFUSED_KEPT = 1024  # peers whose refusal was logged
SRCFD = "__fd"  # a message's connection, as libzmq's metadata names it


class PeerWire:
    """One engine's share of the port."""

    def __init__(self, port: EnginePort) -> None:
        self.peer: bytes | None = None
        self.descriptor = -1
        self.user: WireUser | None = None
        self.endpoint = port.endpoint
        self._port = port

    @property
    def problem(self) -> str:
        return self._port.problem

    def start(self, user: WireUser) -> None:
        self.user = user

    def send(self, data: bytes) -> bool:
        return self.peer is not None and self._port.send(self.peer, data)

    def check(self, *, forget_old: bool) -> None:
        """The port checks its address itself."""

    def forget_old(self) -> None:
        """As `check`."""

    def close(self) -> None:
        self._port.forget(self)


class EnginePort:
    """Raises `ConfigError` for keys that cannot be used, or an address that needs some."""

    def __init__(
        self, endpoint: str, keys: Path | None = None, address_check_s: float = 1.0
    ) -> None:
        self._accepted: Accepted | None = None
        self._join: Callable[[PeerWire, str], None] = lambda *_: None
        self._timer: asyncio.TimerHandle | None = None
        self._check_s = address_check_s
        self._by_peer: dict[bytes, PeerWire] = {}
        self._by_name: dict[str, PeerWire] = {}
        self._refused: dict[bytes, None] = {}
        self._reserved: frozenset[str] = frozenset()
        self._context = zmq.Context()
        self._zap: ThreadAuthenticator | None = None
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(HIGH_WATER_MESSAGES)
        self._socket.linger = 0
        # ZeroMQ allocates what a frame's header announces, that of a peer without a key, too.
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a full or missing peer is an error
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._reader = SocketReader(
            self._socket, self._monitor, self._receive, self._received, self._disconnected
        )
        try:
            check_address(endpoint, keys)
            if keys is not None:
                self._lock(keys)
            self._address = Address(self._socket, endpoint)
        except (BadKeys, zmq.ZMQError, OSError) as error:
            self._close_sockets()
            raise ConfigError([f"engine_endpoint {endpoint}: {error}"]) from error
        self.endpoint = self._address.endpoint

    def _lock(self, folder: Path) -> None:
        pair = own_pair(folder)
        self._accepted = Accepted(folder)  # reports a bad file now
        self._zap = ThreadAuthenticator(self._context)
        self._zap.start()
        self._zap.configure_curve_callback("*", self._accepted)
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = pair.public, pair.secret

    @property
    def problem(self) -> str:
        """Why no engine can connect; empty: one can."""
        return self._address.problem

    def start(self, join: Callable[[PeerWire, str], None], reserved: Collection[str] = ()) -> None:
        """Read from now on. `join`: called with the wire of an engine that is new, and its name; it
        starts the wire's user. `reserved`: names that none of them may have."""
        self._join = join
        self._reserved = frozenset(reserved)
        self._reader.start()
        self._look_after_address()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reader.stop()
        self._address.remove()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        if self._zap is not None:
            self._zap.stop()
        self._socket.close(linger=0)
        self._context.term()

    def _look_after_address(self) -> None:
        loop = asyncio.get_running_loop()
        look = tasks.guard(self._look_after_address, "engine address", tasks.nothing_depends_on_it)
        self._timer = loop.call_later(self._check_s, look)
        if self._address.check() and not self._by_peer:
            self._address.forget_old()

    # --- messages --------------------------------------------------------------------------------

    def send(self, peer: bytes, data: bytes) -> bool:
        """Never blocks. False: the peer's queue is full, or it is gone."""
        try:
            self._socket.send_multipart([peer, data], NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        self._reader.sent()
        return True

    def _receive(self) -> list[zmq.Frame]:
        return self._socket.recv_multipart(NOBLOCK, copy=False)

    def _received(self, frames: list[zmq.Frame]) -> None:
        if len(frames) != 2:
            return  # no engine sends such a message
        peer_frame, message = frames
        peer, data = peer_frame.bytes, message.bytes
        wire = self._by_peer.get(peer)
        if wire is None:
            # The end of a connection that had this descriptor before is known to the monitor.
            self._reader.read_monitor()
            wire = self._meet(peer, data, message)
        if wire is not None and wire.user is not None:
            wire.user.received(data)

    def _meet(self, peer: bytes, data: bytes, message: zmq.Frame) -> PeerWire | None:
        """The wire of an engine that says hello; None: it is not one, or is refused."""
        try:
            hello = api.decode_event(data)
        except msgspec.DecodeError:
            return None
        if not isinstance(hello, api.Loading | api.Ready):
            return None  # of a peer that is gone or was refused
        name = self._name_of(hello.engine, message)
        wire = self._by_name.get(name)
        if (why := self._objection(hello, name, wire)) is not None:
            self._refuse(peer, name or hello.engine, why)
            return None
        if wire is not None and wire.peer is not None:
            self._gone(wire, "it connected again, or another process took its name")
        if wire is None:
            wire = self._by_name[name] = PeerWire(self)
            self._attach(wire, peer, message)
            self._join(wire, name)
        else:
            self._attach(wire, peer, message)
        return wire

    def _attach(self, wire: PeerWire, peer: bytes, message: zmq.Frame) -> None:
        wire.peer, wire.descriptor = peer, int(message.get(SRCFD))
        self._by_peer[peer] = wire

    def _name_of(self, given: str, message: zmq.Frame) -> str:
        """Empty: its key is not accepted any more."""
        if self._accepted is None:
            return given or "engine"
        key = str(message.get("User-Id")).encode()
        holder = self._accepted.names().get(key, "")
        return f"{holder}/{given}" if holder and given and given != holder else holder

    def _objection(
        self, hello: api.Loading | api.Ready, name: str, wire: PeerWire | None
    ) -> str | None:
        """Why an engine is not met; None: it is."""
        given = hello.engine
        if given and NAME.fullmatch(given) is None:
            return "that is no name: expected a-z, 0-9 and inner hyphens"
        if not name:
            return "its key was removed"
        if name in self._reserved:
            return "an engine of this gateway has this name"
        if wire is None:
            full = len(self._by_name) >= ENGINES_MAX
            return f"{ENGINES_MAX} engines have connected already" if full else None
        user = wire.user
        if user is not None and isinstance(hello, api.Ready) and user.is_process(hello.incarnation):
            return None  # its earlier connection has broken, which only its own end knows yet
        answers = user is not None and user.silent_s < TAKEN_WITHIN_S
        taken = wire.peer is not None and answers
        return "another engine has this name, and answers" if taken else None

    def _refuse(self, peer: bytes, name: str, why: str) -> None:
        """It gets no ping, so that it ends and is started again by whoever looks after it."""
        if peer not in self._refused:
            shown = name[:NAME_LOGGED_MAX]
            log.error("an engine that calls itself %r is refused: %s", shown, why)
            self._refused[peer] = None
            if len(self._refused) > REFUSED_KEPT:
                del self._refused[next(iter(self._refused))]

    def _disconnected(self, monitored: Mapping[str, object]) -> None:
        for wire in list(self._by_peer.values()):
            if wire.descriptor == monitored["value"]:
                self._finish(wire)

    def _finish(self, wire: PeerWire) -> None:
        """A connection has closed: what came over it before still counts."""
        for _ in range(HIGH_WATER_MESSAGES):
            try:
                frames = self._receive()
            except zmq.Again:
                break
            self._received(frames)
        self._gone(wire, "its connection closed")

    def _gone(self, wire: PeerWire, reason: str) -> None:
        if wire.peer is not None:
            self._by_peer.pop(wire.peer, None)
        wire.peer, wire.descriptor = None, -1
        if wire.user is not None:
            wire.user.lost(reason)

    def forget(self, wire: PeerWire) -> None:
        """Its user is closed."""
        if wire.peer is not None:
            self._by_peer.pop(wire.peer, None)
        wire.peer, wire.user = None, None
        for name in [name for name, known in self._by_name.items() if known is wire]:
            del self._by_name[name]
