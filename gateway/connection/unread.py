"""A watchdog for the reader: a session must read the messages that wait for it.

It should never trigger. After a lost wake-up or a dead thread, a client would wait for ever and the
log would show nothing. So the runner checks its reader at every tick, and ends the session, with
the reason, if the reader is stuck while nothing holds it back. Two waits may be long and are not
checked: for an engine that is behind (`gateway.connection.runner`), and for the client's share of
the loop (`gateway.runtime.fairness`).

"""

from __future__ import annotations

from enum import Enum

NS_PER_S = 10**9


class Wait(Enum):
    """What a reader waits for, and the longest time that may take, in s."""

    NOTHING = "nothing", 0.0
    MESSAGE = "the client's next message", 20.0
    """The limit while a message is there; without one the wait is unlimited."""
    PARSER = "a long message to be parsed", 60.0
    PICTURES = "pictures to be decoded", 300.0

    def __init__(self, what: str, most_s: float) -> None:
        self.what = what
        self.most_s = most_s


class ReaderWatch:
    """Tracks what the reader waits for, and reports a reader that is stuck. Times in ns."""

    def __init__(self) -> None:
        self._wait = Wait.NOTHING
        self._since_ns = 0

    def waits(self, wait: Wait, now_ns: int) -> None:
        self._wait, self._since_ns = wait, now_ns

    def goes_on(self) -> None:
        self._wait = Wait.NOTHING

    def problem(self, unread_since_ns: int | None, now_ns: int) -> str | None:
        """Why this reader is stuck, in words; None: it is not. `unread_since_ns`: since when a
        message has waited for it."""
        wait = self._wait
        if wait is Wait.NOTHING or (wait is Wait.MESSAGE and unread_since_ns is None):
            return None
        since_ns = self._since_ns
        if wait is Wait.MESSAGE:
            since_ns = max(since_ns, unread_since_ns or 0)
        waited_s = (now_ns - since_ns) / NS_PER_S
        if waited_s <= wait.most_s:
            return None
        if wait is Wait.MESSAGE:
            return f"a message was not read for {waited_s:.0f} s"
        return f"the reader waited {waited_s:.0f} s for {wait.what}"
