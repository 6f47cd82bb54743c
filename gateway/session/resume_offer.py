"""What a session tells its client about resuming: the token, and the state after a resume."""

from __future__ import annotations

from headstart.gateway.protocol.items import Json
from headstart.gateway.protocol.session_config import SessionConfig
from headstart.gateway.session.context import SessionContext

SNAPSHOT_ITEMS = 64
"""Number of items sent to a client that missed more than can be replayed: the newest ones, with at
most 64 KiB per image (`headstart.gateway.protocol.items`), so that they fit into an outbound queue.
"""


class ResumeOffer:
    """The resume offer of one session; without a token there is none."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._token: str | None = None
        self._keep_ms = 0

    def make(self, token: str, keep_ms: int) -> None:
        """Set the token, before the session starts. `keep_ms`: how long a session without a
        connection is kept."""
        self._token, self._keep_ms = token, keep_ms

    @property
    def taken(self) -> bool:
        """Whether the client has asked for resumption."""
        return self._token is not None and _asks(self._context.config)

    def announce(self, before: SessionConfig | None) -> None:
        """Send the token if the settings now ask for it and `before` did not."""
        if self.taken and not (before is not None and _asks(before)):
            assert self._token is not None
            context = self._context
            context.send(context.events.session_resumable(self._token, self._keep_ms))

    def resumed(self, replayed: int | None, running: Json | None) -> None:
        """Sent after the replayed events: the client is now up to date. If the events could not be
        replayed (`replayed` None), the newest items follow. `running`: the item of the active
        response, with its text so far."""
        context = self._context
        items = [] if replayed is not None else context.conversation.newest(SNAPSHOT_ITEMS)
        config = context.config.to_wire()
        context.send(context.events.session_resumed(config, replayed, len(items)))
        for wire in items:
            newer = running is not None and running["id"] == wire["id"]
            context.send(context.events.item_retrieved(running if running and newer else wire))


def _asks(config: SessionConfig) -> bool:
    return config.gateway is not None and bool(config.gateway.resume)
