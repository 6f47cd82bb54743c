"""The URL of a server's sessions, from what the user typed."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from headstart.gateway.errors import ServerUnreachable

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def realtime_url(url: str, model: str | None, intent: str | None = None) -> str:
    """The WebSocket URL. `intent`: of a session that is no conversation ("transcription"). Raises
    `ServerUnreachable` for what is no address."""
    parts = split(url)
    scheme = _SCHEMES[parts.scheme]
    path = parts.path.rstrip("/")
    if not path.endswith("/realtime"):
        path += "/realtime" if path.endswith("/v1") else "/v1/realtime"
    query = parts.query or f"model={quote(model or 'default')}"
    if intent is not None:
        query = urlencode([*parse_qsl(query), ("intent", intent)])
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def split(url: str) -> SplitResult:
    """What the user typed, in parts; without a scheme it is http. Raises `ServerUnreachable` for
    what is no address."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_address = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that is not closed, a port beyond 65535
        is_address = False
    if not is_address:
        raise ServerUnreachable(f"{url!r} is no server's address: expected http://HOST:PORT")
    return parts
