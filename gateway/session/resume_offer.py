"""What a session tells its client about coming back, and tells one that has."""

from __future__ import annotations

from headstart.gateway.protocol.items import Json
from headstart.gateway.protocol.session_config import SessionConfig
from headstart.gateway.session.context import SessionContext

SNAPSHOT_ITEMS = 64
"""Of the conversation, for a client that has missed too much. The newest; pictures are at most
64 KiB of one (`headstart.gateway.protocol.items`), so that they fit into an outbound queue."""


class ResumeOffer:
    """One session's; without a token there is none."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._token: str | None = None
        self._keep_ms = 0

    def make(self, token: str, keep_ms: int) -> None:
        """Before the session starts. `keep_ms`: how long it is kept without a connection."""
        self._token, self._keep_ms = token, keep_ms

    @property
    def taken(self) -> bool:
        """Whether the client has asked to be able to come back."""
        return self._token is not None and _asks(self._context.config)

    def announce(self, before: SessionConfig | None) -> None:
        """Tell the token to who asks and did not `before`."""
        if self.taken and not (before is not None and _asks(before)):
            assert self._token is not None
            context = self._context
            context.send(context.events.session_resumable(self._token, self._keep_ms))

    def resumed(self, replayed: int | None, running: Json | None) -> None:
        """Behind all that was missed: from here on the client is up to date. When it could not be
        sent again (`replayed` None), the newest items follow; `running`: the answer's that is
        being given, as far as it has got."""
        context = self._context
        items = [] if replayed is not None else context.conversation.newest(SNAPSHOT_ITEMS)
        config = context.config.to_wire()
        context.send(context.events.session_resumed(config, replayed, len(items)))
        for wire in items:
            newer = running is not None and running["id"] == wire["id"]
            context.send(context.events.item_retrieved(running if running and newer else wire))


def _asks(config: SessionConfig) -> bool:
    return config.gateway is not None and bool(config.gateway.resume)
