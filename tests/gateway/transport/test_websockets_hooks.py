"""What `gateway.transport.websockets_hooks` relies on in `websockets`; and nobody else does."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from websockets import Frame, Opcode, Protocol, ServerProtocol, Side, State
from websockets.streams import StreamReader

from headstart.gateway.transport.websockets_hooks import FrameBounds, unmask

ROOT = Path(__file__).resolve().parents[3]
HOOKS = ROOT / "gateway/transport/websockets_hooks.py"
FOR_EVERYBODY = (
    *("websockets.asyncio.", "websockets.sync.", "websockets.extensions."),
    *("websockets.exceptions", "websockets.typing"),
)
"""Modules beside `websockets` itself that its documentation tells people to import from."""


def test_websockets_still_has_the_parts_that_are_reached_into() -> None:
    """If this fails, a release of websockets has moved something: mend websockets_hooks.py."""
    source = inspect.getsource(Protocol)
    assert "self.recv_frame(frame)" in source
    assert "self.cur_size: int | None = None" in source
    assert "self.reader = StreamReader()" in source
    assert isinstance(StreamReader().buffer, bytearray)
    assert callable(StreamReader().discard)
    assert unmask(b"\1\2\3\4\5", b"\1\1\1\1") == b"\0\3\2\5\4"


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_unmask_is_the_standards(payload: bytes, mask: bytes) -> None:
    """RFC 6455 §5.3: octet i is that of the payload XOR octet i mod 4 of the mask."""
    assert unmask(payload, mask) == bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def framed(*pieces: bytes) -> bytes:
    """One message of so many frames, as a client sends it."""
    client = Protocol(Side.CLIENT)
    if len(pieces) == 1:
        client.send_text(pieces[0])
    else:
        client.send_text(pieces[0], fin=False)
        for piece in pieces[1:-1]:
            client.send_continuation(piece, fin=False)
        client.send_continuation(pieces[-1], fin=True)
    return b"".join(client.data_to_send())


MESSAGES = st.lists(
    st.lists(st.binary(max_size=140), min_size=1, max_size=3), min_size=1, max_size=3
)


@given(messages=MESSAGES, data=st.data())
def test_bounds_are_where_messages_end(messages: list[list[bytes]], data: st.DataObject) -> None:
    """However the bytes are cut: between messages after a whole one, and nowhere else."""
    whole = [framed(*pieces) for pieces in messages]
    ends, end = {0}, 0
    for message in whole:
        end += len(message)
        ends.add(end)
    server = ServerProtocol(state=State.OPEN, max_size=None)
    bounds, at = FrameBounds(server), 0
    while True:
        assert bounds.between_messages == (at in ends)
        if at == end:
            break
        size = data.draw(st.integers(1, end - at))
        bounds.given(size)
        server.receive_data(b"".join(whole)[at : at + size])
        at += size
    frames = [event for event in server.events_received() if isinstance(event, Frame)]
    assert [f.opcode for f in frames].count(Opcode.TEXT) == len(messages)


def test_what_was_read_of_a_frame_can_be_forgotten() -> None:
    """Megabytes of a message that never ends."""
    server = ServerProtocol(state=State.OPEN, max_size=None)
    bounds = FrameBounds(server)
    server.receive_data(framed(b"x" * 100_000)[:-1])
    assert len(server.reader.buffer) > 90_000
    bounds.forget()
    assert len(server.reader.buffer) == 0


def test_nobody_else_reaches_into_it() -> None:
    """Others import what it exports, from where it says."""
    bad = []
    for folder in ("headstart", "gateway", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path in (HOOKS, Path(__file__)) or "clients" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                if module.partition(".")[0] != "websockets":
                    continue
                public = importlib.import_module(module).__all__
                known = module == "websockets" or module.startswith(FOR_EVERYBODY)
                assert isinstance(node, ast.ImportFrom)
                bad += [
                    f"{path.relative_to(ROOT)}: {module}.{alias.name}"
                    for alias in node.names
                    if not known or alias.name not in public
                ]
    assert bad == []
