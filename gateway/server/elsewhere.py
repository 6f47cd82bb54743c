"""Answers at addresses where nothing is, for whom they are likely to be from.

A person who opens the WebSocket's address in a browser, or mistypes another, is told where the page
is. A client of OpenAI's other interfaces gets an error in the form that it reads.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.staticfiles import StaticFiles

WEBSOCKETS: Final = ("/v1/realtime", "/realtime", "/v1/dashboard")
METHOD_NOT_ALLOWED: Final = 405
UPGRADE_REQUIRED: Final = 426
NOT_FOUND: Final = 404
SPEAKS: Final = (
    "This server speaks OpenAI's Realtime protocol: connect a WebSocket to /v1/realtime, "
    "or POST a WebRTC offer to /v1/realtime/calls"
)
PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headstart: {title}</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/style.css">
<main class="elsewhere">
<h1>{title}</h1>
<p>{said}</p>
<p><a href="/">Talk</a> · <a href="/dashboard/">Dashboard</a> ·
<a href="/status">Status</a></p>
</main>
</html>
"""


def nothing_there(request: Request, error: Exception) -> Response:
    """What an address that leads nowhere answers: 404, or 426 at a WebSocket's address. A wrong
    method is a 405 with the methods that there are; below /v1/ both have an error as their body."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if request.method == "GET" and path in WEBSOCKETS:
        said = "This is a WebSocket's address: connect a client to it."
        headers = {"Upgrade": "websocket", "Connection": "Upgrade"}  # both, or neither: RFC 9110
        return _answer(request, UPGRADE_REQUIRED, "WebSocket only", said, headers)
    if allowed := _other_methods(request):
        said = f"Expected {allowed} for {path}, got {request.method}."
        headers = {"Allow": allowed}
        if path.startswith("/v1/"):
            return _error(METHOD_NOT_ALLOWED, said, headers)
        return PlainTextResponse(f"{said}\n", METHOD_NOT_ALLOWED, headers)
    among_files = isinstance(request.scope.get("endpoint"), StaticFiles)
    if path.startswith("/v1/") and (among_files or error.status_code == NOT_FOUND):
        return _error(NOT_FOUND, f"There is no {request.method} {path}. {SPEAKS}.")
    if error.status_code == METHOD_NOT_ALLOWED:
        return PlainTextResponse(error.detail, METHOD_NOT_ALLOWED, error.headers)
    return _answer(request, NOT_FOUND, "Not found", "There is nothing at this address.", {})


def _other_methods(request: Request) -> str:
    """The methods that the address has, for `Allow`, if it has any but not this one."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL:
            found |= route.methods or set()
    return ", ".join(sorted(found))


def _answer(
    request: Request, status: int, title: str, said: str, headers: dict[str, str]
) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(PAGE.format(title=title, said=said), status, headers)
    if status == UPGRADE_REQUIRED:
        return _error(status, f"{said} {SPEAKS}.", headers)
    return PlainTextResponse(f"{said}\n", status, headers)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error as OpenAI's clients read it."""
    body = {"type": "invalid_request_error", "code": "unknown_url", "param": None}
    return JSONResponse({"error": body | {"message": message}}, status, headers)


HANDLERS: Final[dict[int | type[Exception], Callable[[Request, Exception], Response]]] = {
    NOT_FOUND: nothing_there,
    METHOD_NOT_ALLOWED: nothing_there,
}
"""For `Starlette(exception_handlers=...)`."""
