"""The messages between an engine and an encoder process.

Each is one ZeroMQ message: a header (msgpack) and the bytes that belong to it. Of `Encode` these
are the pictures' pixels, of `Encoded` embeddings, in the order in which the header lists them.

    engine                                encoder process
    Encode  ────────────────────────────▶ an answer to each, with its number:
            ◀──────────────────────────── Encoded, or Failed
    Cancel  ────────────────────────────▶ (none)

Both name the `identity` of what encodes: a digest of weights, settings and this version. Whoever
has another one refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

VERSION = 1
"""Raised with each change of what is sent, or of what is computed of it."""

MAX_SIDE_PX = 1 << 15
MAX_PIXELS_BYTES = 192 << 20  # of a picture: 67 megapixels are no camera's
MAX_UNITS = 64  # of a message
MAX_FRAMES = 16
"""Pictures of one unit: no family has more than two."""


class BadMessage(Exception):
    """A message that is none of these, or whose bytes are not those that its header lists."""


class Size(msgspec.Struct, array_like=True, frozen=True):
    """Of a picture in pixels, three bytes each."""

    height: int
    width: int

    @property
    def num_bytes(self) -> int:
        return self.height * self.width * 3


class Unit(msgspec.Struct, array_like=True, frozen=True):
    """Pictures that are encoded together: the frames of a vision unit, or a still. Results are
    shared within `domain`."""

    sizes: tuple[Size, ...]
    domain: bytes = b""


class Encode(msgspec.Struct, tag="encode", frozen=True):
    """`still`: by the rules of the model's stills, if it has any. `within_ms`: later, nobody waits
    for it. `engine`: its name; engines take turns."""

    number: int
    identity: str
    engine: str
    units: tuple[Unit, ...]
    still: bool = False
    within_ms: float = 60_000.0


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Nobody waits for the request of this number any more."""

    number: int


class Block(msgspec.Struct, array_like=True, frozen=True):
    """Embeddings [tokens, width], and of a frame the grid that they belong to."""

    tokens: int
    width: int
    dtype: Literal["float32", "float64"] = "float32"
    rows: int = 0
    columns: int = 0


class Encoded(msgspec.Struct, tag="encoded", frozen=True):
    """Blocks of each unit, in order; None: a still that this model treats like a frame.
    `encode_ms`: the time of its own batches, 0 if all was known or somebody else's."""

    number: int
    identity: str
    units: tuple[tuple[Block, ...] | None, ...]
    encode_ms: float = 0.0


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The request of this number has no result; `code` as in `engine.encoders.errors`."""

    number: int
    code: str
    detail: str = ""


Request = Encode | Cancel
Reply = Encoded | Failed
_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A vision unit or still as it comes back: its embeddings, with rows and columns of a frame."""

    vectors: Tensor
    rows: int = 0
    columns: int = 0


def identity_of(weights: str, settings: bytes) -> str:
    """What an encoder process encodes with: a digest of its weights and its settings."""
    return sha256(f"{VERSION} {weights} ".encode() + settings).hexdigest()[:32]


def header(message: Request | Reply) -> bytes:
    return _encoder.encode(message)


def read_request(frames: Sequence[Any]) -> tuple[Request, list[npt.NDArray[np.uint8]]]:
    """A request, and the pictures of all its units, [height, width, 3]. `frames`: buffers. Raises
    `BadMessage`."""
    request: Request = _decoded(_requests, frames)
    if isinstance(request, Cancel):
        return request, []
    sizes = [size for unit in request.units for size in unit.sizes]
    frames_of = [len(unit.sizes) for unit in request.units]
    if not 1 <= len(frames_of) <= MAX_UNITS or not all(1 <= n <= MAX_FRAMES for n in frames_of):
        raise BadMessage(
            f"expected 1 to {MAX_UNITS} units of 1 to {MAX_FRAMES} pictures, "
            f"got {len(frames_of)} of up to {max(frames_of, default=0)}"
        )
    for size in sizes:
        if not (1 <= size.height <= MAX_SIDE_PX and 1 <= size.width <= MAX_SIDE_PX):
            raise BadMessage(f"expected sides of 1 to {MAX_SIDE_PX}, got {size}")
    _require_bytes([size.num_bytes for size in sizes], frames[1:])
    return request, [
        np.frombuffer(frame, np.uint8).reshape(size.height, size.width, 3)
        for frame, size in zip(frames[1:], sizes, strict=True)
    ]


def read_reply(frames: Sequence[Any]) -> tuple[Reply, list[list[Picture] | None]]:
    """A reply, and what became of each unit. Raises `BadMessage`."""
    reply: Reply = _decoded(_replies, frames)
    if isinstance(reply, Failed):
        return reply, []
    blocks = [block for unit in reply.units for block in unit or ()]
    for block in blocks:
        if min(block.tokens, block.width) < 1 or min(block.rows, block.columns) < 0:
            raise BadMessage(f"expected embeddings, got {block}")
        if block.rows * block.columns not in (0, block.tokens):
            raise BadMessage(f"expected as many embeddings as the grid has cells, got {block}")
    wanted = [prod((block.tokens, block.width, np.dtype(block.dtype).itemsize)) for block in blocks]
    _require_bytes(wanted, frames[1:])
    rest = iter(frames[1:])
    return reply, [
        None if unit is None else [_picture(block, next(rest)) for block in unit]
        for unit in reply.units
    ]


def blocks_of(pictures: Sequence[Picture]) -> tuple[tuple[Block, ...], list[memoryview]]:
    """The header's part of one unit, and the bytes that belong to it."""
    blocks, content = [], []
    for picture in pictures:
        vectors = np.ascontiguousarray(picture.vectors.numpy())
        name = str(vectors.dtype)
        assert name in ("float32", "float64"), name
        kind: Any = name
        tokens, width = vectors.shape
        blocks.append(Block(tokens, width, kind, picture.rows, picture.columns))
        content.append(vectors.data.cast("B"))
    return tuple(blocks), content


def _picture(block: Block, content: Any) -> Picture:
    vectors = np.frombuffer(content, block.dtype).reshape(block.tokens, block.width)
    return Picture(torch.from_numpy(vectors.copy()), block.rows, block.columns)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], frames: Sequence[Any]) -> Any:
    if not frames:
        raise BadMessage("expected a header, got nothing")
    try:
        return decoder.decode(frames[0])
    # Text that is no UTF-8, and fields that nest without end, are no `DecodeError` of msgspec's.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(str(error)) from error


def _require_bytes(wanted: Sequence[int], frames: Sequence[Any]) -> None:
    given = [memoryview(frame).nbytes for frame in frames]
    if list(wanted) != given:
        raise BadMessage(f"expected bytes {list(wanted)} behind the header, got {given}")
    if not all(given):
        raise BadMessage("expected bytes, got none")
