"""The engines of one gateway, and which of them holds which session.

A new session goes to an engine that is ready and has room (`headstart.engine.placement`). When an
engine is lost, its sessions are told, and opened anew on others that have room, from the gateway's
records; those for which there is no room wait until some engine is ready. Sessions of the other
engines are not concerned. An engine that drains keeps its sessions and gets no more; it is told to
leave when the last one is gone.

With one engine everything here is as it is for that one: `state`, `stats` and so on are its own.
Bounds: one entry for each session, and `GONE_MAX` engines that connected and are gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headstart.engine import api
from headstart.engine.placement import (
    Load,
    Node,
    NodeState,
    Placement,
    PlacementRules,
    Placer,
)
from headstart.gateway.engine_link import EngineLink, EngineListener, LinkObserver, LinkState
from headstart.gateway.engines.port import EnginePort
from headstart.gateway.engines.totals import Totals, counted
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import ChildProcess

log = logging.getLogger("headstart.engines")

EVEN = PlacementRules(bound=1.0)
"""An engine here has a few cores or one GPU, and a session's place is not worth more than those."""
GONE_MAX = 64
STATES = ("ready", "draining", "refused", "loading", "lost", "waiting", "drained")
"""What `Member.state` may be; of several engines the first of these is the state of the whole."""


@dataclass(eq=False)
class Member:
    """One engine. `child`: its process, if it is ours to restart."""

    link: EngineLink
    child: ChildProcess | None = None
    observer: LinkObserver | None = None
    """Told of the link's events, after the sessions' places are known."""
    refused: str = ""
    """Why it gets no sessions although it is ready."""
    leaving: bool = False
    """It was told to leave."""

    @property
    def name(self) -> str:
        return self.link.name

    @property
    def state(self) -> str:
        """One of `STATES`."""
        link = self.link
        if self.leaving:
            return "drained"
        if link.state is not LinkState.READY:
            return str(link.state)
        return "refused" if self.refused else "draining" if link.is_draining else "ready"

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        return {"drained": "its last session is gone", "draining": "it was told to"}.get(
            self.state, self.refused or self.link.reason
        )

    @property
    def restarts(self) -> int:
        return self.link.counters.losses if self.child is None else self.child.restarts


class _Watch(LinkObserver):
    """Passes a link's events on to the engines, and to the member's own observer."""

    def __init__(self, engines: Engines, member: Member) -> None:
        self._engines, self._member = engines, member

    def engine_loading(self, loading: api.Loading) -> None:
        if self._member.observer is not None:
            self._member.observer.engine_loading(loading)

    def engine_ready(self, ready: api.Ready) -> None:
        self._engines.member_ready(self._member, ready)
        if self._member.observer is not None:
            self._member.observer.engine_ready(ready)

    def engine_lost(self, reason: str) -> None:
        self._engines.member_lost(self._member)
        if self._member.observer is not None and not self._member.leaving:
            self._member.observer.engine_lost(reason)

    def engine_draining(self) -> None:
        self._engines.member_drains(self._member)

    def engine_stats(self, stats: api.Stats) -> None:
        self._engines.member_reports(self._member, stats)

    def engine_stalled(self, reason: str) -> None:
        if self._member.observer is not None:
            self._member.observer.engine_stalled(reason)


class Engines:
    """Takes the place of one `EngineLink` for the gateway. Used on the loop."""

    def __init__(
        self,
        members: Iterable[Member] = (),
        port: EnginePort | None = None,
        *,
        observe: Callable[[Member], LinkObserver | None] = lambda _: None,
        lost_after_s: float = 30.0,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`port`: where more engines connect. `observe`: the observer of such an engine."""
        self.members: dict[str, Member] = {}
        self.totals = Totals()
        self._port = port
        self._observe = observe
        self._lost_after_s = lost_after_s
        self._now_ns = now_ns
        self._placer = Placer(rules=EVEN)
        self._listeners: dict[str, EngineListener] = {}
        self._at: dict[str, Member] = {}  # where a session is
        self._homeless: dict[str, None] = {}  # sessions that wait for an engine, in order
        self._loop: asyncio.AbstractEventLoop | None = None
        self._will_settle = False
        for member in members:
            self._add(member)

    @classmethod
    def single(cls, link: EngineLink, child: ChildProcess | None = None) -> Engines:
        """One engine, over a link that its owner starts and closes."""
        engines = cls([Member(link, child)])
        engines._loop = asyncio.get_running_loop()
        return engines

    def start(self) -> None:
        """Read from all links, on the running loop."""
        self._loop = asyncio.get_running_loop()
        for member in self.members.values():
            member.link.start()
        if self._port is not None:
            self._port.start(self.joined, self.members.keys())

    async def tried(self) -> None:
        """Return when each engine of this machine has been started, or could not be."""
        for member in self.members.values():
            if member.child is not None:
                await member.child.tried.wait()

    def close(self) -> None:
        for member in self.members.values():
            member.link.close()
        if self._port is not None:
            self._port.close()

    @property
    def endpoint(self) -> str | None:
        """Where more engines connect."""
        return None if self._port is None else self._port.endpoint

    def joined(self, wire: Any, name: str) -> None:
        """An engine from elsewhere has connected for the first time."""
        self._forget_gone()
        member = Member(EngineLink(wire, self._lost_after_s, name))
        member.observer = self._observe(member)
        self._add(member)
        member.link.start()

    def _add(self, member: Member) -> None:
        self.members[member.name] = member
        member.link.observer = _Watch(self, member)
        self._placer.add(Node(member.name))
        self._placer.fail(member.name, self._now_ns())  # until it is ready

    def _forget_gone(self) -> None:
        """Drop engines that connected once and are gone, the oldest first."""
        gone = [
            member
            for member in self.members.values()
            if member.child is None and member.link.state is LinkState.LOST
        ]
        for member in gone[: max(0, len(gone) - GONE_MAX + 1)]:
            self._unseat(member)
            self._placer.remove(member.name)
            del self.members[member.name]
            self.totals.forget(member.name)
            member.link.close()

    # --- sessions --------------------------------------------------------------------------------

    def attach(self, session_id: str, listener: EngineListener) -> None:
        """Route an engine's events for the session to `listener`, and place it."""
        self._listeners[session_id] = listener
        if not self._place(session_id):
            self._homeless[session_id] = None

    def detach(self, session_id: str) -> None:
        """The session has ended."""
        self._listeners.pop(session_id, None)
        self._homeless.pop(session_id, None)
        self._placer.release(session_id, self._now_ns())
        member = self._at.pop(session_id, None)
        if member is not None:
            member.link.detach(session_id)
            self._leave_if_empty(member)
        if self._homeless:
            self._settle_soon()

    def send(self, command: api.Command) -> bool:
        """Send a session's command to its engine; never blocks. False: it was not sent."""
        member = self._at.get(getattr(command, "session", ""))
        return member is not None and member.link.send(command)

    def engine_of(self, session_id: str) -> str | None:
        """The name of the engine that holds a session; None: it waits for one."""
        member = self._at.get(session_id)
        return None if member is None else member.name

    def batch_of(self, session_id: str) -> float:
        """How many sessions a step of a session's engine works for, of the newest steps; 0: none,
        or unknown."""
        member = self._at.get(session_id)
        stats = None if member is None else member.link.stats
        return 0.0 if stats is None else stats.recent_steps.sessions_mean or 0.0

    @property
    def has_room(self) -> bool:
        """Whether a new session would be placed, or may wait: no engine is ready yet. False: those
        that are ready are full, or no engine takes sessions any more."""
        states = {member.state for member in self.members.values()}
        if not states & {"ready"}:
            return not states or bool(states & {"loading", "lost", "waiting"})
        full = self._placer.rules.kv_full_share
        return any(
            status.state is NodeState.READY and (status.kv_share is None or status.kv_share < full)
            for status in self._placer.status(self._now_ns())
        )

    @property
    def moved(self) -> int:
        """Sessions that went on at another engine, since the start."""
        return self._placer.moved

    def _place(self, session_id: str) -> bool:
        placement = self._placer.place(session_id, self._now_ns())
        if not isinstance(placement, Placement):
            return False
        member = self.members[placement.node]
        self._at[session_id] = member
        member.link.attach(session_id, self._listeners[session_id])
        return True

    def _settle_soon(self) -> None:
        """Deferred: the caller is in the middle of telling sessions what happened."""
        if self._loop is not None and not self._will_settle:
            self._will_settle = True
            settle = tasks.guard(self._settle, "engine link", tasks.nothing_depends_on_it)
            self._loop.call_soon(settle)

    def _settle(self) -> None:
        """Find engines for the sessions that have none."""
        self._will_settle = False
        for member in self.members.values():
            if member.link.state is LinkState.LOST:
                self._unseat(member)
        for session_id in list(self._homeless):
            if not self._place(session_id):
                continue
            del self._homeless[session_id]
            ready = self._at[session_id].link.ready
            assert ready is not None
            listener = self._listeners[session_id]
            tasks.guard(listener.engine_ready, "engine link", tasks.nothing_depends_on_it)(ready)

    def _unseat(self, member: Member) -> None:
        for session_id in list(member.link.sessions):
            member.link.detach(session_id)
            del self._at[session_id]
            self._homeless[session_id] = None

    # --- what happens to engines -----------------------------------------------------------------

    def member_ready(self, member: Member, ready: api.Ready) -> None:
        """It takes work: its first time, or again."""
        member.refused = self._mismatch(member, ready)
        member.leaving = False
        self._unseat(member)  # if it started again before they could go elsewhere
        if member.refused:
            log.error("%s gets no sessions: %s", member.name, member.refused)
            return
        now_ns = self._now_ns()
        self._placer.recover(member.name, now_ns)
        if not member.link.is_draining:
            self._placer.recover(member.name, now_ns)  # not down any more: this ends its drain
        self._leave_if_empty(member)  # it drains still, and its sessions have gone elsewhere
        self._settle_soon()

    def _mismatch(self, member: Member, ready: api.Ready) -> str:
        """A session may move, so all engines must have one model."""
        for other in self.members.values():
            serving = other.link.ready
            if other is member or other.state not in ("ready", "draining") or serving is None:
                continue
            if serving.model.name != ready.model.name:
                return (
                    f"it serves {ready.model.name!r}, and {other.name} serves "
                    f"{serving.model.name!r}: a gateway's engines serve the same model"
                )
        return ""

    def member_lost(self, member: Member) -> None:
        """Its sessions are told by the link; then they go elsewhere."""
        self._placer.fail(member.name, self._now_ns())
        self._settle_soon()

    def member_drains(self, member: Member) -> None:
        """It takes no new sessions."""
        self._placer.drain(member.name)
        self._leave_if_empty(member)

    def member_reports(self, member: Member, stats: api.Stats) -> None:
        """A heartbeat: how full and how busy it is. K/V of idle sessions can be put elsewhere by
        the engine itself, so it is full when it says that it refuses sessions."""
        self.totals.add(member.name, stats)
        share = stats.kv_blocks_used / stats.kv_blocks_total if stats.kv_blocks_total else 0.0
        full = stats.level is api.Level.REFUSING
        load = Load(stats.recent_steps.queue_max, 1.0 if full else min(share, 0.9))
        self._placer.report(member.name, load, self._now_ns())
        if self._homeless:
            self._settle_soon()

    def _leave_if_empty(self, member: Member) -> None:
        if member.state == "draining" and not member.link.sessions:
            log.info("%s has no sessions left: it may leave", member.name)
            member.leaving = member.link.send(api.Leave())

    # --- the whole, as if it were one engine ------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether an engine takes new sessions."""
        return any(member.state == "ready" for member in self.members.values())

    @property
    def state(self) -> str:
        states = {member.state for member in self.members.values()}
        return next((state for state in STATES if state in states), "waiting")

    @property
    def reason(self) -> str:
        """Why none takes new sessions."""
        if self.is_ready:
            return ""
        reasons = {member.name: member.reason for member in self.members.values()}
        if len(reasons) == 1:
            return next(iter(reasons.values()))
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return told or "no engine has connected yet"

    @property
    def loading(self) -> api.Loading | None:
        if self.is_ready:
            return None
        members = self.members.values()
        return next((m.link.loading for m in members if m.link.loading is not None), None)

    @property
    def ready(self) -> api.Ready | None:
        """Of the first engine that has been ready: they all have one model."""
        known = [m for m in self.members.values() if m.link.ready is not None and not m.refused]
        known.sort(key=lambda member: STATES.index(member.state))
        return known[0].link.ready if known else None

    @property
    def stats(self) -> api.Stats | None:
        """The newest heartbeats, added up; of several engines, one that is lost holds nothing."""
        newest = {
            name: counted(stats) if len(self.members) > 1 and _is_lost(member) else stats
            for name, member in self.members.items()
            if (stats := member.link.stats) is not None
        }
        return self.totals.of(newest)

    @property
    def restarts(self) -> int:
        return sum(member.restarts for member in self.members.values())

    def body(self) -> list[dict[str, Any]]:
        """For `/status` and the dashboard: one object for each engine."""
        return [_body(member) for member in self.members.values()]


def _is_lost(member: Member) -> bool:
    return member.link.state is LinkState.LOST


def _body(member: Member) -> dict[str, Any]:
    stats, ready = member.link.stats, member.link.ready
    return {
        "name": member.name,
        "state": member.state,
        "reason": member.reason if member.state != "ready" else "",
        "local": member.child is not None,
        "pid": ready.pid or None if ready is not None else None,
        "sessions": len(member.link.sessions),
        "restarts": member.restarts,
        "rss_bytes": stats.rss_bytes if stats else None,
        "kv_blocks_used": stats.kv_blocks_used if stats else None,
        "kv_blocks_total": stats.kv_blocks_total if stats else None,
        "level": stats.level.name.lower() if stats else None,
        "pending_prefill_tokens": stats.pending_prefill_tokens if stats else None,
        "steps_p95_ms": stats.recent_steps.p95_ms if stats else None,
    }
