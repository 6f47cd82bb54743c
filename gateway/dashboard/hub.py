"""Where all that is told of sessions comes together, and goes to whoever watches.

No I/O; time comes from the clock that it is given. A clock that goes back does not take the feed
with it: `at_ms` never falls, and the wall clock is looked at once, when the server starts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headstart.engine import api
from headstart.gateway.audio.clock import ns_to_ms
from headstart.gateway.dashboard.messages import Json, Message, Snapshot, wall_clock
from headstart.gateway.dashboard.ring import Ring
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.telemetry.turn_record import TurnRecord, kv_to_wire

ERRORS_COUNTED = 10_000  # of the last minute; more count as so many
ERROR_WINDOW_MS = 60_000.0
MESSAGE_CHARS_MAX = 1_000  # of an error

# What a record takes while it waits to be encoded, about.
_RECORD_BYTES, _SPAN_BYTES, _CHUNK_BYTES = 4_096, 160, 700


@dataclass(slots=True)
class SessionView:
    """What the list of sessions shows of one, as far as the hub has been told."""

    transport: str
    opened_ms: float
    turns: int = 0
    last_turn: str | None = None
    kv: Json | None = None
    headroom_percent: float | None = None
    overruns: int = 0


class Hub(Observer):
    """See the module's docstring."""

    def __init__(
        self,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: float | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.ring = ring or Ring()
        self.sessions: dict[str, SessionView] = {}
        self.errors = 0
        """Since the start."""
        self.rtc_of: Callable[[str], Json | None] = lambda _: None
        """The state of a session's call, None: it is on none. Set by whoever knows of calls."""
        self.on_watched: Callable[[], None] = lambda: None
        """Called when somebody has come to watch."""
        self._now_ns = now_ns
        self._started_ns = now_ns()
        self._started_s = time.time() if wall_s is None else wall_s
        self._at_ms = 0.0
        self._seq = 0
        self._watchers: list[Watcher] = []
        self._error_times_ms: deque[float] = deque(maxlen=ERRORS_COUNTED)

    # --- watchers --------------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    @property
    def started_at(self) -> str:
        return wall_clock(self._started_s)

    def watch(self, watcher: Watcher, hello: Callable[[], Json]) -> list[Message]:
        """From now on all goes to `watcher`, too. What it gets before that: a greeting, the ring,
        and the sign that from there on it is live."""
        now = self._seq, self.now_ms()
        greeting = [Message("hello", *now, hello), *self.ring, Message("live", *now, dict)]
        self._watchers.append(watcher)
        self.on_watched()
        return greeting

    def unwatch(self, watcher: Watcher) -> None:
        """It has gone. More calls change nothing."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def end(self, code: int, reason: str) -> None:
        """Send all watchers away: a WebSocket's close code, and why."""
        for watcher in self._watchers:
            watcher.end(code, reason)

    # --- what sessions tell ----------------------------------------------------------------------

    def turn(self, record: TurnRecord) -> None:
        view = self.sessions.get(record.session_id)
        if view is not None:
            view.turns += record.revision == 1
            view.last_turn = record.response_id
            view.kv = view.kv if record.kv is None else _kv_of(record.kv)
        transport = None if view is None else view.transport
        rtc = self.rtc_of(record.session_id)
        message = self._next("turn", partial(self._turn, record, transport, rtc))
        size = _RECORD_BYTES + _SPAN_BYTES * len(record.stamps.spans)
        self.ring.add_turn(record.response_id, message, size + _CHUNK_BYTES * len(record.chunks))
        self._send(message)

    def _turn(self, record: TurnRecord, transport: str | None, rtc: Json | None) -> Json:
        at_s = self._started_s + (record.origin_ns - self._started_ns) / 1e9
        return record.to_wire() | {"transport": transport, "at": wall_clock(at_s), "rtc": rtc}

    def chunk(self, chunk: api.Chunk, budget: ChunkBudget) -> None:
        if (view := self.sessions.get(chunk.session)) is not None:
            view.headroom_percent = budget.headroom_percent
            view.overruns += budget.overrun
        if not any(watcher.wants_chunks for watcher in self._watchers):
            return
        fields = {
            "session": chunk.session,
            "turn": chunk.ref.turn,
            **budget.to_wire(),
            "prefilled": chunk.prefilled_tokens,
            "rolled_back": chunk.rolled_back_tokens,
        }
        message = Message("chunk", self._seq, self.now_ms(), lambda: fields)
        for watcher in self._watchers:
            if watcher.wants_chunks:
                watcher.put(message)

    def error(
        self, code: str, message: str, session_id: str | None, response_id: str | None = None
    ) -> None:
        self.errors += 1
        self._error_times_ms.append(self.now_ms())
        text = message[:MESSAGE_CHARS_MAX]
        fields = {"code": code, "message": text, "session": session_id, "turn": response_id}
        told = self._next("error", lambda: fields)
        self.ring.add_error(told)
        self._send(told)

    # --- what the server tells -------------------------------------------------------------------

    def opened(self, session_id: str, transport: str) -> None:
        self.sessions[session_id] = SessionView(transport, self.now_ms())
        self._session(session_id, "opened", transport)

    def closed(self, session_id: str) -> None:
        view = self.sessions.pop(session_id, None)
        if view is not None:
            self._session(session_id, "closed", view.transport)

    def detached(self, session_id: str) -> None:
        """Its connection broke, and it waits for its client."""
        if (view := self.sessions.get(session_id)) is not None:
            self._session(session_id, "detached", view.transport)

    def resumed(self, session_id: str, transport: str) -> None:
        """Its client has come back, perhaps another way."""
        if (view := self.sessions.get(session_id)) is not None:
            view.transport = transport
            self._session(session_id, "resumed", transport)

    def _session(self, session_id: str, what: str, transport: str) -> None:
        fields = {"session": session_id, "what": what, "transport": transport}
        self._send(self._next("session", lambda: fields))

    def snapshot(self, fields: Json) -> None:
        """A second of the server's, while somebody looks."""
        self._send(self._next("snapshot", lambda: fields, Snapshot))

    @property
    def errors_last_minute(self) -> int:
        since_ms = self.now_ms() - ERROR_WINDOW_MS
        while self._error_times_ms and self._error_times_ms[0] < since_ms:
            self._error_times_ms.popleft()
        return len(self._error_times_ms)

    # --- within ----------------------------------------------------------------------------------

    def now_ms(self) -> float:
        """Since the server started; never less than it was."""
        self._at_ms = max(self._at_ms, ns_to_ms(self._now_ns() - self._started_ns))
        return self._at_ms

    def _next(self, kind: str, make: Callable[[], Any], of: type[Message] = Message) -> Message:
        self._seq += 1
        return of(kind, self._seq, self.now_ms(), make)

    def _send(self, message: Message) -> None:
        for watcher in self._watchers:
            watcher.put(message)


def _kv_of(kv: api.KvStats) -> Json:
    wire = kv_to_wire(kv)
    return {name: wire[name] for name in ("tokens", "by_modality", "evicted")}
