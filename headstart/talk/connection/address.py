"""The URL of a server's sessions, from what the user typed."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from headstart.gateway.errors import ServerUnreachable

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def realtime_url(url: str, model: str | None, intent: str | None = None) -> str:
    """The WebSocket URL. `intent`: of a session that is no conversation ("transcription"). Raises
    `ServerUnreachable` for what is no address."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ServerUnreachable(f"{url!r} is no server's address: expected http://HOST:PORT")
    path = parts.path.rstrip("/")
    if not path.endswith("/realtime"):
        path += "/realtime" if path.endswith("/v1") else "/v1/realtime"
    query = parts.query or f"model={quote(model or 'default')}"
    if intent is not None:
        query = urlencode([*parse_qsl(query), ("intent", intent)])
    return urlunsplit((scheme, parts.netloc, path, query, ""))
