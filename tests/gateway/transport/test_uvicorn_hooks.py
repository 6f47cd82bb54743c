"""What `gateway.transport.uvicorn_hooks` relies on in uvicorn, and that nobody else does."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from headstart.gateway.server.http1 import Http
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.transport.uvicorn_hooks import HttpConnection, Server, SocketConnection
from headstart.gateway.transport.websocket.channel import RealtimeProtocol

ROOT = Path(__file__).resolve().parents[3]
HOOKS = ("gateway/transport/uvicorn_hooks.py", "gateway/transport/websockets_hooks.py")
SUBCLASSES: dict[type, type] = {
    GatewayServer: Server,
    Http: HttpConnection,
    RealtimeProtocol: SocketConnection,
}

OVERRIDDEN: dict[type, set[str]] = {
    Server: {"startup", "shutdown", "handle_exit"},
    HttpConnection: {
        "__init__",
        "connection_made",
        "connection_lost",
        "on_response_complete",
        "shutdown",
        "timeout_keep_alive_handler",
        "send_400_response",
        "_unsupported_upgrade_warning",
        "handle_websocket_upgrade",
    },
    SocketConnection: {
        "connection_made",
        "connection_lost",
        "shutdown",
        "receive",
        "send",
        "handle_connect",
        "handle_pong",
        "keepalive_timeout",
        "send_receive_event_to_app",
    },
}
"""Methods of uvicorn's that are replaced or added to."""

READ: dict[type, set[str]] = {
    Server: {"config", "force_exit", "lifespan", "server_state", "should_exit", "started"},
    HttpConnection: {"conn", "connections", "cycle", "flow", "headers", "loop", "transport"},
    SocketConnection: {
        "close_sent",
        "conn",
        "curr_msg_data_type",
        "disconnected",
        "frames",
        "handle_parser_exception",
        "handshake_complete",
        "handshake_initiated",
        "initial_response",
        "loop",
        "pending_ping_payload",
        "pong_timer",
        "queue",
        "read_paused",
        "response",
        "schedule_ping",
        "scope",
        "transport",
        "writable",
    },
}
"""Attributes of uvicorn's that are read, set or called."""


def own_names(of: type) -> set[str]:
    """Methods and attributes that a class of uvicorn's has, those set in its methods too."""
    tree = ast.parse(inspect.getsource(of))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    return methods | {name for name, is_set in names_of_self(tree) if is_set}


def names_of_self(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Each `self.name`, and whether it is set."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id == "self":
            yield node.attr, isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize("ours", OVERRIDDEN, ids=lambda ours: ours.__name__)
def test_uvicorn_still_has_the_parts_that_are_reached_into(ours: type) -> None:
    """If this fails, a release of uvicorn has moved something: mend uvicorn_hooks.py. Everything
    else of the gateway's may then fail for that reason alone."""
    base = ours.__mro__[1]
    theirs = own_names(base)
    assert OVERRIDDEN[ours] | READ[ours] <= theirs
    tree = ast.parse(inspect.getsource(ours))
    used = {name for name, _ in names_of_self(tree)} & theirs
    defined = {name for name in vars(ours) if name in theirs}
    assert defined == OVERRIDDEN[ours], "the list above is of what is overridden"
    assert used - defined <= READ[ours] <= used, "the list above is of what is used"
    for name in OVERRIDDEN[ours]:  # a new parameter would not reach the method it is for
        mine, their = (inspect.signature(getattr(of, name)) for of in (ours, base))
        if name != "__init__":
            assert list(mine.parameters) == list(their.parameters), name


def test_uvicorn_calls_them_as_it_did() -> None:
    """Where the order or the arguments matter."""
    assert set(inspect.signature(H11Protocol).parameters) == {
        *("config", "server_state", "app_state", "_loop")
    }
    upgrade = inspect.getsource(H11Protocol.handle_websocket_upgrade)
    assert "protocol.connection_made(self.transport)" in upgrade
    assert "self.transport.set_protocol(protocol)" in upgrade
    events = inspect.getsource(H11Protocol.handle_events)
    assert "self.send_400_response(msg)" in events
    assert "self.handle_websocket_upgrade(event)" in events
    for name in ("disconnected", "keep_alive", "response_complete", "message_event"):
        assert f"self.{name} = " in inspect.getsource(RequestResponseCycle)
    assert "write_paused" in vars(FlowControl(asyncio.Transport()))
    socket = inspect.getsource(WebSocketsSansIOProtocol)
    assert "await self.app(self.scope, self.receive, self.send)" in socket
    assert "self.conn = ServerProtocol(" in socket
    assert "self.handle_events()" in inspect.getsource(WebSocketsSansIOProtocol.data_received)
    serving = inspect.getsource(uvicorn.Server)
    assert "await self.startup(sockets=sockets)" in serving
    assert "await self.shutdown(sockets=sockets)" in serving
    assert "signal.signal(sig, self.handle_exit)" in serving
    state = ServerState()
    assert (state.connections, state.tasks) == (set(), set())
    connection = h11.Connection(h11.SERVER)
    assert (connection.their_state, connection.trailing_data) == (h11.IDLE, (b"", False))


def python_files() -> list[Path]:
    folders = ("headstart", "gateway", "benchmarks", "tests")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_nobody_else_reaches_into_them() -> None:
    """Of uvicorn others import what it exports, of h11 nothing."""
    bad = []
    for path in python_files():
        name = str(path.relative_to(ROOT))
        if name in HOOKS or path == Path(__file__) or name.startswith("tests/clients/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                inner = [a.name for a in node.names if a.name.startswith(("uvicorn.", "h11"))]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("uvicorn"):
                inner = [a.name for a in node.names if a.name not in uvicorn.__all__]
            else:
                continue
            bad += [f"{name} imports {each}" for each in inner]
    assert bad == []


@pytest.mark.parametrize("one", SUBCLASSES, ids=lambda one: one.__name__)
def test_subclasses_use_our_names_alone(one: type) -> None:
    """And those of asyncio's protocols; what they override of uvicorn's is in the hooks."""
    (hook,) = one.__bases__
    assert hook is SUBCLASSES[one]
    theirs = own_names(hook.__mro__[1]) - set(dir(asyncio.Protocol))
    used = {name for name, _ in names_of_self(ast.parse(inspect.getsource(one)))}
    assert (used | set(vars(one))) & theirs == set()


async def test_a_wish_for_another_protocol_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """uvicorn writes two warnings for each."""

    async def nothing(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(nothing, interface="asgi3", ws="none", log_config=None)
    connection = HttpConnection(config, ServerState())
    connection.headers = [(b"connection", b"upgrade"), (b"upgrade", b"h2c")]
    assert not connection._should_upgrade()
    assert caplog.records == []
