"""Requests as nobody means them: none is an error of ours, and none writes a line of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headstart.gateway.runtime.log_lines import LINE, SafeFormatter
from headstart.gateway.transport.uvicorn_hooks import ClientDisconnected
from tests.gateway.server.running import server
from tests.gateway.shapes import GET, HANDSHAKE, HOST
from tests.gateway.shell_fakes import RunningGateway, running_gateway

KEY = "k" * 20
NAMES = [
    "Host",
    "Origin",
    "Authorization",
    "Content-Length",
    "Content-Type",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Extensions",
    "Expect",
    "Range",
    "If-Modified-Since",
    "If-None-Match",
    "Accept",
    "Accept-Encoding",
    "Cookie",
    "Forwarded",
    "X-Forwarded-For",
    "OpenAI-Beta",
    "headstart-resume",
    "Access-Control-Request-Method",
]
WORDS = (
    b"http://[",
    b"http://[::1",
    b"http://\xe4\xb8\x80\xe2\x84\x80",
    b"null",
    b"localhost:http",
    b"[",
    b"a@b:c",
    b"-1",
    b"99999999999999999999",
    b"bytes=0-,0-,0-",
    b"bytes=-0",
    b"Bearer \xff\xfe",
    b"bearer ek_\xed\xa0\x80",
    b"openai-insecure-api-key.\xff, realtime",
    b"realtime, openai-insecure-api-key.ek_1",
    b"multipart/form-data",
    b"multipart/form-data; boundary=\xff",
    b"multipart/form-data; boundary=x; charset=nonsense",
    b"websocket",
    b"Upgrade",
    b"keep-alive, Upgrade",
    b"chunked",
    b"100-continue",
    b"permessage-deflate; client_max_window_bits=99",
    b"Sat, 99 Foo 99999 99:99:99 GMT",
    b"AAAAAAAAAAAAAAAAAAAAAA==",
    b"13",
    b"",
)
NAME = st.sampled_from([name.encode() for name in NAMES]) | st.binary(min_size=1, max_size=8)
VALUE = st.sampled_from(WORDS) | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(NAME, VALUE), max_size=6)
PATHS = st.sampled_from(
    [
        "/",
        "/status",
        "/healthz",
        "/metrics",
        "/v1/realtime",
        "/realtime",
        "/v1/models",
        "/v1/realtime/calls",
        "/v1/realtime/calls/rtc_0/hangup",
        "/v1/realtime/client_secrets",
        "/main.js",
        "/../../etc/passwd",
        "//status",
        "/%2e%2e/",
        "/%00",
        "/a%0ab",
        "/%1b%5b2J",
        "/%ff%fe",
        "/%ed%a0%80",
        "*",
        "http://[",
        "/a?b=%ff&last_event_id=[",
    ]
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "CONNECT", "DELETE", "PRI"])
BODY = st.sampled_from([b"", b"v=0\r\n", b"{}", b"--x\r\n\r\n", b"\xff\x00"]) | st.binary(
    max_size=40
)
FEW = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@contextlib.contextmanager
def serving(**flags: Any) -> Iterator[tuple[asyncio.Runner, RunningGateway]]:
    """A server that tests without a loop of their own can ask things of."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        yield runner, runner.run(stack.enter_async_context(running_gateway(**flags)))
        runner.run(stack.aclose())


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Errors that were logged, and lines that do not begin as a record does."""
    formatter = SafeFormatter(LINE)
    told = [formatter.format(record) for record in caplog.records]
    errors = [r.getMessage() for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")]
    caplog.clear()
    return errors + [line for line in told if not line.isprintable()]


@pytest.mark.parametrize("flags", [{}, {"api_keys": KEY}, {"allowed_origins": "https://a.example"}])
def test_no_header_is_an_error(flags: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Any headers, at any path, over HTTP and WebSocket, past the parsers: never a 500, never an
    exception."""
    with serving(**flags) as (runner, running):
        app = running.server.config.loaded_app

        async def ask(scope: dict[str, Any], body: bytes) -> list[dict[str, Any]]:
            told: list[dict[str, Any]] = []
            is_http = scope["type"] == "http"
            asked = [{"type": "http.request", "body": body} if is_http else CONNECTED]
            asked += [{"type": "http.disconnect" if is_http else "websocket.disconnect"}] * 9

            async def receive() -> dict[str, Any]:
                return asked.pop(0)

            async def send(message: dict[str, Any]) -> None:
                if message["type"] == "websocket.accept":
                    raise ClientDisconnected  # it is let in, which others test
                told.append(message)

            with contextlib.suppress(ClientDisconnected):  # uvicorn's own, as it does
                await app(scope, receive, send)
            return told

        @FEW
        @given(st.sampled_from(["http", "websocket"]), METHODS, PATHS, HEADERS, BODY)
        def fuzz(kind: str, method: str, path: str, headers: Any, body: bytes) -> None:
            told = runner.run(ask(scope_of(kind, method, path, headers), body))
            assert 500 not in [message.get("status") for message in told]
            assert troubles(caplog) == []

        fuzz()


CONNECTED = {"type": "websocket.connect"}


def scope_of(kind: str, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> Any:
    """As uvicorn makes one of a request."""
    raw, _, query = path.partition("?")
    protocols = b",".join(v for n, v in headers if n.lower() == b"sec-websocket-protocol")
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": kind.replace("websocket", "ws"),
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower(), value) for name, value in headers],
        "subprotocols": [
            p.strip().decode("ascii", "surrogateescape") for p in protocols.split(b",")
        ],
        "extensions": {"websocket.http.response": {}},
        "state": {},
    }


@pytest.mark.parametrize("keys", ["", KEY])
def test_no_bytes_are_an_error(keys: str, caplog: pytest.LogCaptureFixture) -> None:
    """The same as raw bytes on sockets, whole, cut, and with anything behind: never a 500, never
    an exception; and the server is as well as before."""
    with serving(api_keys=keys) as (runner, running):
        host, port = running.url.partition("://")[2].split(":")

        async def say(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            said = b""
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.03):
                    while piece := await reader.read(4096):
                        said += piece
            writer.transport.abort()
            return said

        @FEW
        @given(METHODS, PATHS, HEADERS, st.booleans(), st.booleans(), BODY, st.integers(0, 400))
        @example("GET", "/", [(b"Origin", b"http://[")], False, False, b"", 0)
        @example("GET", "/v1/realtime", [(b"Sec-WebSocket-Key", b"\xff")], False, True, b"", 0)
        @example(
            "POST", "/healthz", [(b"Transfer-Encoding", b"chunked")], False, False, b"xx\r\n", 0
        )
        def fuzz(
            method: str, path: str, headers: Any, old: bool, up: bool, body: bytes, cut: int
        ) -> None:
            line = f"{method} {path} HTTP/1.{0 if old else 1}\r\n".encode()
            more = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            data = line + (HANDSHAKE if up else HOST) + more + b"\r\n" + body
            said = runner.run(say(data[: len(data) - cut % len(data)]))
            assert b" 500 " not in said
            assert troubles(caplog) == []

        fuzz()
        answer = runner.run(say(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"))
        assert b'"gateway":"ok"' in answer


def test_no_request_forges_a_line_of_the_log() -> None:
    """A real server's, of a path, of an origin and of a name that it does not answer to."""
    forged = "%0a12:00:00%20CRITICAL%20headstart:%20owned%1b[2J%c2%85%e2%80%a8"
    with server("--set", f"api_keys={KEY}", "--set", "log_level=debug") as running:
        host, port = running.url.partition("://")[2].split(":")
        for head in (
            f"GET /v1/{forged} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /status/{forged} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /status HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\x1b[2J\x9b\r\n\r\n",
            "GET /status HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n",
            (GET + HANDSHAKE).decode() + f"Origin: http://{forged}\r\n\r\n",
            "GET /\x1b[2J HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ):
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(head.encode("latin-1"))
                assert b" 500 " not in stranger.recv(4096)
        running.process.send_signal(signal.SIGTERM)
        _, log = running.process.communicate(timeout=60)
    assert "owned" in log  # it is told, in the line that it belongs to
    assert "Traceback" not in log
    lines = [line for line in log.split("\n") if "headstart is ready" not in line]
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if line.startswith("12:00:00 CRITICAL")] == []
