"""What engines and encoder processes say to each other."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.encoders.messages import (
    MAX_FRAMES,
    MAX_UNITS,
    BadMessage,
    Block,
    Cancel,
    Encode,
    Encoded,
    Failed,
    Picture,
    Size,
    Unit,
    blocks_of,
    header,
    identity_of,
    read_reply,
    read_request,
)

ONE = Unit((Size(2, 3),), b"d")
NO_TEXT = b"\x82\xa4type\xa6cancel\xa1\xff\x01"  # a name that is no UTF-8
NESTED = b"\x82\xa4type\xa6cancel\xa1x" + b"\x91" * 100_000


def request(*units: Unit) -> bytes:
    return header(Encode(7, "i", "e", units))


def test_pictures_and_embeddings_arrive_as_they_left() -> None:
    """Of units of one picture and of two, of any size; a still that is none has no bytes."""
    pair = Unit((Size(1, 2), Size(2, 1)))
    sent = [np.arange(18, dtype=np.uint8), np.zeros(6, np.uint8), np.ones(6, np.uint8)]
    got, pictures = read_request([request(ONE, pair), *sent])
    assert isinstance(got, Encode)
    assert got.units == (ONE, pair)
    assert [each.shape for each in pictures] == [(2, 3, 3), (1, 2, 3), (2, 1, 3)]
    assert pictures[0].ravel().tolist() == list(range(18))
    vectors = torch.randn(6, 4, dtype=torch.float64)
    blocks, content = blocks_of([Picture(vectors, 2, 3)])
    reply, answers = read_reply([header(Encoded(7, "i", (blocks, None))), *content])
    assert isinstance(reply, Encoded)
    assert answers[1] is None
    assert answers[0] is not None
    (picture,) = answers[0]
    assert torch.equal(picture.vectors, vectors)
    assert (picture.rows, picture.columns) == (2, 3)
    assert read_request([header(Cancel(3))]) == (Cancel(3), [])


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xc1 no msgpack"],
        [header(Failed(1, "code"))],
        [request(ONE)],
        [request(ONE), bytes(17)],
        [request(ONE), bytes(18), bytes(18)],
        [request(), bytes(18)],
        [request(Unit(())), bytes(18)],
        [request(*[ONE] * (MAX_UNITS + 1)), *[bytes(18)] * (MAX_UNITS + 1)],
        [request(Unit((Size(0, 3),))), b""],
        [request(Unit((Size(-2, -3),))), bytes(18)],
        [request(Unit((Size(1 << 40, 1 << 40),))), bytes(18)],
        [request(Unit((Size(1, 1),) * (MAX_FRAMES + 1))), *[bytes(3)] * (MAX_FRAMES + 1)],
        [NO_TEXT],
        [NESTED],
    ],
)
def test_what_is_no_request_is_refused(frames: list[bytes]) -> None:
    """By its name, whatever is wrong with it."""
    with pytest.raises(BadMessage):
        read_request(frames)


@pytest.mark.parametrize(
    "frames",
    [
        [b"garbage"],
        [request(ONE)],
        [header(Encoded(1, "i", ((Block(2, 4),),)))],
        [header(Encoded(1, "i", ((Block(2, 4),),))), bytes(31)],
        [header(Encoded(1, "i", ((Block(0, 4),),))), b""],
        [header(Encoded(1, "i", ((Block(-1, -8),),))), bytes(32)],
        [msgspec.msgpack.encode({"type": "encoded", "number": 1, "identity": 1, "units": []})],
        [NO_TEXT],
        [NESTED],
    ],
)
def test_what_is_no_answer_is_refused(frames: list[bytes]) -> None:
    """So that nothing else is taken for embeddings."""
    with pytest.raises(BadMessage):
        read_reply(frames)


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_no_bytes_raise_anything_else(frames: list[bytes]) -> None:
    """Whatever comes is a message, or refused."""
    for read in (read_request, read_reply):
        with contextlib.suppress(BadMessage):
            read(frames)


def test_the_identity_has_all_that_matters() -> None:
    """Other weights or other settings: another one."""
    assert identity_of("w", b"s") == identity_of("w", b"s")
    assert len({identity_of("w", b"s"), identity_of("v", b"s"), identity_of("w", b"t")}) == 3
