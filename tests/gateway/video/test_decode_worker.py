"""The process that decodes clients' pictures, spoken to over its socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import numpy as np

from headstart.engine.api import SMALL_PICTURE
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.video.decode import Encoded, decode
from headstart.gateway.video.decode_worker import (
    Reply,
    Request,
    read_exactly,
    read_message,
    send_message,
    serve,
    to_decoded_image,
)
from tests.gateway.video.drawn import png


def asked(connection: socket.socket, text: str, before: bytes | None = None) -> tuple[Reply, bytes]:
    short_side, pixels = SMALL_PICTURE.short_side, SMALL_PICTURE.pixels
    send_message(connection, Request(len(text), "item.image", False, short_side, pixels, before))
    connection.sendall(text.encode())
    reply = read_message(connection, Reply)
    return reply, bytes(read_exactly(connection, reply.rgb_bytes))


def test_pictures_and_errors_come_back_as_they_are_made() -> None:
    """What `decode` says, over the socket: pixels, thumbnail, and an error's words."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    reply, rgb = asked(ours, png(20, 10, 77))
    there, here = to_decoded_image(reply, rgb), decode([Encoded(png(20, 10, 77), "item.image")])
    assert not isinstance(here, ProtocolError)
    assert there.image == here[0].image
    np.testing.assert_array_equal(there.thumbnail, here[0].thumbnail)
    reply, rgb = asked(ours, "http://x/y.png")
    wrong = decode([Encoded("http://x/y.png", "item.image")])
    assert isinstance(wrong, ProtocolError)
    assert (reply.error, rgb) == ((wrong.code, wrong.message), b"")
    assert asked(ours, png(5, 5, 1))[0].width == 5
    first = asked(ours, png(20, 10, 77), b"")[0].scores
    assert first is not None
    second = asked(ours, png(20, 10, 99), first.pixels)[0].scores
    again = decode([Encoded(png(20, 10, 99), "item.image", before=first.pixels)])
    assert not isinstance(again, ProtocolError)
    assert second == again[0].scores
    ours.close()
    thread.join(10)
    assert not thread.is_alive()


def test_it_imports_little_and_ends_with_the_gateway() -> None:
    """The process begins in tenths of a second: no schema, no call. It ends when its socket does,
    whoever closed it."""
    code = (
        "import sys, headstart.gateway.video.decode_worker\n"
        "sys.exit(bool({'openai', 'pydantic', 'aiortc', 'torch', 'zmq'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-m", "headstart.gateway.video.decode_worker", "256"]
    process = subprocess.Popen(argv, stdin=theirs.fileno())
    theirs.close()
    assert read_message(ours, Reply) == Reply(), "it has begun"
    assert asked(ours, png(5, 5, 1))[0].width == 5
    ours.close()
    assert process.wait(10) == 0
