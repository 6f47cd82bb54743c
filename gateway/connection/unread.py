"""The last line of defence of a session's reader: what it owes an answer to, it reads.

Nothing here should ever happen. A wake-up that was lost, or a thread that has died, would leave a
client waiting for ever, with nothing in the log; so the runner looks at its reader with every tick,
and one that stands still while nothing holds it back ends its session, with the reason. What may
hold it back for long is not looked at here: the engine, which is behind
(`gateway.connection.runner`), and the client's share of the loop (`gateway.runtime.fairness`).
"""

from __future__ import annotations

from enum import Enum

NS_PER_S = 10**9


class Wait(Enum):
    """What a reader waits for, and the longest that this may take, in s."""

    NOTHING = "nothing", 0.0
    MESSAGE = "the client's next message", 20.0
    """Longest with one there; without one it may take for ever."""
    PARSER = "a long message to be parsed", 60.0
    PICTURES = "pictures to be decoded", 300.0

    def __init__(self, what: str, most_s: float) -> None:
        self.what = what
        self.most_s = most_s


class ReaderWatch:
    """Told what the reader does; asked now and then whether that is right. Times in ns."""

    def __init__(self) -> None:
        self._wait = Wait.NOTHING
        self._since_ns = 0

    def waits(self, wait: Wait, now_ns: int) -> None:
        self._wait, self._since_ns = wait, now_ns

    def goes_on(self) -> None:
        self._wait = Wait.NOTHING

    def problem(self, unread_since_ns: int | None, now_ns: int) -> str | None:
        """Why this reader will never go on, in words; None: it may. `unread_since_ns`: since when
        a message has been there for it."""
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
