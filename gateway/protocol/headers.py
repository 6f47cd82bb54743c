"""Our names in URLs, headers and subprotocols.

Separate from `headstart.gateway.protocol.extensions`, whose schema takes a second to import.

"""

from __future__ import annotations

RESUME_HEADER = "headstart-resume"
"""Request header; its value is the token of the session to resume."""
RESUME_SUBPROTOCOL = "headstart-resume."
"""The same for browsers, which cannot set headers: the token follows the dot."""
RESUME_LAST_EVENT = "last_event_id"
"""The query parameter. It never carries the token, because URLs are logged on the way."""
