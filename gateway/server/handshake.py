"""What a client asks for by its address and headers before its first event, and may not get.

A refusal is an error event and a close code after the handshake, since one client tries a failed
handshake again for ever. An unknown model is none: names of models stand for what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import FatalProtocolError

CONVERSATION = "conversation"
TRANSCRIPTION = "transcription"


def refused(
    query: Mapping[str, str], headers: Mapping[str, str], subprotocols: Sequence[str]
) -> FatalProtocolError | None:
    """Why this socket cannot have a session; None when it can."""
    beta = "realtime=v1" in headers.get("openai-beta", "")
    if beta or any(offered.startswith("openai-beta.realtime") for offered in subprotocols):
        return errors.beta_shape()
    if query.get("intent", CONVERSATION) not in (CONVERSATION, TRANSCRIPTION):
        return errors.invalid_intent()
    if "call_id" in query:
        return errors.no_sideband()
    return None
