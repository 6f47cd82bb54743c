import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol

from gateway.quick_frame import quick_text


def framed(text: str) -> bytes:
    """As the websockets package's client sends it."""
    client = Protocol(CLIENT)
    client.send_text(text.encode())
    return b"".join(client.data_to_send())


@given(text=st.text(max_size=300) | st.integers(100, 66_000).map(lambda n: "é" * n))
def test_what_it_takes_is_what_the_parser_takes(text: str) -> None:
    """Texts of every length class under 64 KiB; longer and tiny ones are the parser's."""
    size = len(text.encode())
    taken = quick_text(framed(text))
    assert taken == (text if 2 <= size < 1 << 16 else None)


@given(data=st.binary(max_size=40) | st.binary(max_size=200).map(lambda tail: b"\x81" + tail))
def test_nothing_is_taken_that_the_parser_would_refuse(data: bytes) -> None:
    """Of any bytes: either it is left to the parser, or that gives the same text and no more."""
    taken = quick_text(data)
    if taken is None:
        return
    server = Protocol(SERVER)
    server.receive_data(data)
    (frame,) = server.events_received()
    assert isinstance(frame, Frame)
    assert (frame.opcode, frame.fin, bytes(frame.data).decode()) == (Opcode.TEXT, True, taken)


def _changed(at: int, value: int) -> bytes:
    data = bytearray(framed("some words of some length"))
    data[at] = value
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        _changed(0, 0x01),  # the beginning of a fragmented one
        _changed(0, 0x80),  # a continuation
        _changed(0, 0x82),  # binary
        _changed(0, 0xC1),  # compressed
        _changed(0, 0x89),  # a ping
        _changed(1, 25),  # not masked
        framed("cut short")[:-1],
        framed("one") + framed("two"),
        b"\x81\xfe\x00\x05" + b"\0\0\0\0hello",  # a length in more bytes than it needs
        b"\x81\x84\0\0\0\0\xff\xfe\xfd\xfc",  # no UTF-8
    ],
)
def test_everything_else_is_the_parsers(data: bytes) -> None:
    """Fragments, other kinds, compression, no mask, pieces of frames, several, nonsense."""
    assert quick_text(data) is None


def test_a_compressed_text_is_the_parsers() -> None:
    """As it comes from a client that negotiated permessage-deflate."""
    client = Protocol(CLIENT)
    client.extensions = [PerMessageDeflate(False, False, 15, 15)]
    client.send_text(b"words " * 40)
    assert quick_text(b"".join(client.data_to_send())) is None
