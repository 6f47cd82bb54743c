"""Checks what a client requests by URL and headers before its first event.

A refusal is an error event and a close code after the handshake, because one client retries a
failed handshake without end. An unknown model is not refused: the served model answers to any name.

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
    """The error if this socket may not have a session; None if it may."""
    beta = "realtime=v1" in headers.get("openai-beta", "")
    if beta or any(offered.startswith("openai-beta.realtime") for offered in subprotocols):
        return errors.beta_shape()
    if query.get("intent", CONVERSATION) not in (CONVERSATION, TRANSCRIPTION):
        return errors.invalid_intent()
    if "call_id" in query:
        return errors.no_sideband()
    return None
