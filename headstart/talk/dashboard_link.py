"""Links from a turn that was spoken to its waterfall in the server's dashboard."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

from headstart.talk.dialog import Turn

SCHEMES = {"ws": "http", "wss": "https"}
API_PATHS = ("/realtime", "/v1")


def turn_link(server_url: str, turn: Turn | None) -> str | None:
    """None where there is nothing to see: a turn without an answer, or another server's."""
    if turn is None or not turn.reports or turn.last_answer is None:
        return None
    parts = urlsplit(server_url if "://" in server_url else f"http://{server_url}")
    path = parts.path.rstrip("/")
    for api_path in API_PATHS:
        path = path.removesuffix(api_path)
    scheme = SCHEMES.get(parts.scheme, parts.scheme)
    fragment = f"turn={quote(turn.last_answer.response_id, safe='')}"
    return urlunsplit((scheme, parts.netloc, f"{path}/dashboard/", "", fragment))
