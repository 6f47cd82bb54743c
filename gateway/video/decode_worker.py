"""The process that decodes clients' images, one after the other.

`python -m gateway.video.decode_worker MIB`, with its socket to the gateway on descriptor 0. A file
that crashes the decoder, exhausts the memory or never ends affects only this process: it may use
`MIB` of memory beyond its initial size, and the gateway kills it when an image takes too long. Ends
when the socket does.

    gateway                                         here
                                         ◀─────────  an empty Reply, once it has started
    Request, then `chars` bytes of text  ─────────▶
                                         ◀─────────  Reply, then `rgb_bytes` of pixels

Each message is msgpack with a four-byte big-endian length prefix.

"""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError, invalid_image
from headstart.gateway.video.decode import DecodedImage, Encoded, decode
from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH, FrameScores

READ_BYTES = 1 << 20
LENGTH = struct.Struct(">I")
NICENESS = 5
"""Speech has priority over images."""


class Request(msgspec.Struct, frozen=True):
    """`Encoded` without its text, and the requested size."""

    chars: int
    param: str
    bare_base64: bool
    short_side: int
    pixels: int
    before: bytes | None = None


class Reply(msgspec.Struct, frozen=True):
    """An image without its pixels, or the error's code and message. `scores`: as in
    `DecodedImage`."""

    rgb_bytes: int = 0
    width: int = 0
    height: int = 0
    thumbnail: bytes = b""
    scores: FrameScores | None = None
    error: tuple[str | None, str] | None = None


Message = TypeVar("Message", Request, Reply)


class Gone(Exception):
    """The other end has closed the socket."""


class Connection(Protocol):
    """The part of a socket that is used."""

    def recv_into(self, buffer: memoryview, /) -> int: ...
    def sendall(self, data: bytes, /) -> None: ...


def read_exactly(connection: Connection, count: int) -> bytearray:
    """Raises `Gone`, and what the socket raises."""
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        received = connection.recv_into(view[got : got + READ_BYTES])
        if not received:
            raise Gone
        got += received
    return data


def send_message(connection: Connection, message: Request | Reply) -> None:
    """Raises what the socket raises."""
    body = msgspec.msgpack.encode(message)
    connection.sendall(LENGTH.pack(len(body)) + body)


def read_message(connection: Connection, kind: type[Message]) -> Message:
    """Raises `Gone`, and what the socket raises."""
    (length,) = LENGTH.unpack(read_exactly(connection, LENGTH.size))
    return msgspec.msgpack.decode(read_exactly(connection, length), type=kind)


def to_decoded_image(reply: Reply, rgb: bytes) -> DecodedImage:
    """The image in a reply."""
    thumbnail = np.frombuffer(reply.thumbnail, np.uint8)
    image = api.Image(reply.width, reply.height, rgb)
    shape = THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
    return DecodedImage(image, thumbnail.reshape(shape), reply.scores)


def serve(connection: Connection) -> None:
    """Decode requests until the gateway has gone."""
    try:
        while True:
            request = read_message(connection, Request)
            text = read_exactly(connection, request.chars).decode("ascii")
            reply, rgb = _answer(request, text)
            send_message(connection, reply)
            connection.sendall(rgb)
    except (Gone, ConnectionError):
        return


def _answer(request: Request, text: str) -> tuple[Reply, bytes]:
    encoded = Encoded(text, request.param, request.bare_base64, request.before)
    try:
        outcome = decode([encoded], api.PictureSize(request.short_side, request.pixels))
    except MemoryError:
        outcome = invalid_image(request.param, "It takes more memory than a picture may.")
    if isinstance(outcome, ProtocolError):
        return Reply(error=(outcome.code, outcome.message)), b""
    (seen,) = outcome
    image = seen.image
    reply = Reply(len(image.rgb), image.width, image.height, seen.thumbnail.tobytes(), seen.scores)
    return reply, image.rgb


def limit_memory(mib: int) -> None:
    """Limit memory to this much more than now; further allocations fail. No core dumps: they would
    contain users' images."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most_bytes = pages * resource.getpagesize() + (mib << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """The process."""
    os.nice(NICENESS)
    limit_memory(int(sys.argv[1]))
    connection = socket.socket(fileno=0)
    send_message(connection, Reply())  # it has started
    serve(connection)


if __name__ == "__main__":
    main()
