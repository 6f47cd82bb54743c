"""Why a server refuses a talk, read from an answer to HTTP that anybody may have sent."""

from __future__ import annotations

import contextlib
import json

from headstart.client_key import VARIABLE
from headstart.gateway.errors import ServerRefused

UNAUTHORISED = 401
KEY_FAULT = "invalid_api_key"
SHOWN_CHARS = 200


def error_code(body: bytes) -> str:
    """The `code` of an error in the API's form; "" where there is none."""
    return _field(body, "code")


def error_message(body: bytes) -> str:
    """Its `message`, or the beginning of whatever was sent instead."""
    return _field(body, "message") or body.decode(errors="replace").strip()[:SHOWN_CHARS]


def refused_key(url: str) -> ServerRefused:
    """A 401. Says where a key goes; never holds the one that was sent."""
    return ServerRefused(
        f"{url} answered 401: it needs an API key that it knows; give one with --key or in the "
        f"environment variable {VARIABLE}"
    )


def _field(body: bytes, name: str) -> str:
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        said = json.loads(body)["error"][name]
        return said if isinstance(said, str) else ""
    return ""
