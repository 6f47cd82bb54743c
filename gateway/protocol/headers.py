"""Names of ours in a connection's address, headers and subprotocols.

Apart from `headstart.gateway.protocol.extensions`, whose schema takes a second to import.
"""

from __future__ import annotations

RESUME_HEADER = "headstart-resume"
"""A request's header; its value is the token of the session to go on with."""
RESUME_SUBPROTOCOL = "headstart-resume."
"""The same for browsers, which can set no header: the token stands behind the dot."""
RESUME_LAST_EVENT = "last_event_id"
"""The query parameter; the token is never one, for addresses are logged on the way."""
