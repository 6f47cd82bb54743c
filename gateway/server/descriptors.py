"""File descriptors: the process's limit, and how they are shared.

A process without free descriptors cannot accept a connection, not even to refuse it. So a share is
kept for pending connections, which are refused with a reason or dropped
(`gateway.connection.pending`), and a reserve; the rest is for sessions, even if fewer fit than
allowed.

"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field

from headstart.gateway.connection.pending import PENDING_MAX
from headstart.gateway.errors import ConfigError

log = logging.getLogger("headstart.serve")

RESERVE = 8
"""For descriptors that libraries open briefly."""
TO_COME = 24
"""For the loop, and for links to the engine and the TTS, which are not open yet when descriptors
are counted; 18 with uvloop 0.22 and pyzmq 27."""
PER_PENDING = 2
"""The connection, and a file of the web page."""
PER_SESSION = 4
"""A WebSocket needs one; a call one socket per local address, usually a few."""
PENDING_MIN = 4
PENDING_SHARE = 0.25
"""Share of what is left, if it does not suffice for all."""


def open_count() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/dev/fd")) - 1  # not counting the folder itself


def _none() -> int:
    return 0


@dataclass(slots=True)
class Descriptors:
    """`limit`: of the process; `pending_max`, `sessions_max`: how many fit. `pending`: how many
    pending connections there are now. `count`: as `open_count`."""

    limit: int
    pending_max: int
    sessions_max: int
    pending: Callable[[], int] = _none
    count: Callable[[], int] = field(default=open_count)

    def has_room(self, sessions: int, sockets: int = 0) -> bool:
        """Whether another session fits beside `sessions`, one with `sockets` descriptors besides
        its connection, while all pending connections keep their place."""
        if sessions >= self.sessions_max:
            return False
        places = PER_PENDING * max(0, self.pending_max - self.pending())
        return self.count() + sockets + places + RESERVE <= self.limit


def prepare(max_sessions: int, pending_max: int = PENDING_MAX) -> Descriptors:
    """Raise the soft limit as far as allowed to fit `max_sessions`, and share out the descriptors.
    Raises `ConfigError` if they do not suffice for one session."""
    own = open_count() + TO_COME + RESERVE
    wanted = own + PER_PENDING * pending_max + PER_SESSION * max_sessions
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = _raised(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    limit = wanted if soft == resource.RLIM_INFINITY else soft
    shared = share(limit - own, pending_max, max_sessions)
    if shared is None:
        least = own + PER_PENDING * PENDING_MIN + 1
        raise ConfigError(
            [f"{limit} file descriptors are too few, at least {least} are needed: raise ulimit -n"]
        )
    pending, sessions = shared
    if sessions < max_sessions:
        log.warning(
            "%d file descriptors are enough for %d sessions of max_sessions=%d: raise ulimit -n",
            limit,
            sessions,
            max_sessions,
        )
    return Descriptors(limit, pending, sessions)


def share(left: int, pending_max: int, max_sessions: int) -> tuple[int, int] | None:
    """How many pending connections, and sessions of one descriptor, fit. None: no session."""
    pending = pending_max
    if left < PER_PENDING * pending_max + PER_SESSION * max_sessions:
        pending = min(pending_max, max(PENDING_MIN, int(left * PENDING_SHARE) // PER_PENDING))
    sessions = left - PER_PENDING * pending
    return (pending, sessions) if sessions > 0 else None


def _raised(soft: int, wanted: int, hard: int) -> int:
    """The soft limit after trying to raise it."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of %d file descriptors could not be raised: %s", soft, error)
        return soft
    if wanted > soft:
        log.info("raised the limit of file descriptors from %d to %d", soft, wanted)
    return wanted
