import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets import Frame, Opcode, Protocol, Side
from websockets.extensions.permessage_deflate import PerMessageDeflate

from headstart.gateway.transport.websocket.fast_frame import fast_text
from headstart.gateway.transport.websockets_hooks import unmask


def framed(text: str) -> bytes:
    """As the websockets package's client sends it."""
    client = Protocol(Side.CLIENT)
    client.send_text(text.encode())
    return b"".join(client.data_to_send())


@given(text=st.text(max_size=300) | st.integers(100, 66_000).map(lambda n: "é" * n))
def test_what_it_takes_is_what_the_parser_takes(text: str) -> None:
    """Texts of every length class under 64 KiB; longer and tiny ones are the parser's."""
    size = len(text.encode())
    taken = fast_text(framed(text))
    assert taken == (text if 2 <= size < 1 << 16 else None)


@given(data=st.binary(max_size=40) | st.binary(max_size=200).map(lambda tail: b"\x81" + tail))
def test_nothing_is_taken_that_the_parser_would_refuse(data: bytes) -> None:
    """Of any bytes: either it is left to the parser, or that gives the same text and no more."""
    taken = fast_text(data)
    if taken is None:
        return
    server = Protocol(Side.SERVER)
    server.receive_data(data)
    (frame,) = server.events_received()
    assert isinstance(frame, Frame)
    assert (frame.opcode, frame.fin, bytes(frame.data).decode()) == (Opcode.TEXT, True, taken)


def _changed(at: int, value: int) -> bytes:
    data = bytearray(framed("some words of some length"))
    data[at] = value
    return bytes(data)


# Named, because the masks are drawn anew: workers compare the names of the tests that they found.
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_changed(0, 0x01), id="the beginning of a fragmented one"),
        pytest.param(_changed(0, 0x80), id="a continuation"),
        pytest.param(_changed(0, 0x82), id="binary"),
        pytest.param(_changed(0, 0xC1), id="compressed"),
        pytest.param(_changed(0, 0x89), id="a ping"),
        pytest.param(_changed(1, 25), id="not masked"),
        pytest.param(framed("cut short")[:-1], id="cut short"),
        pytest.param(framed("one") + framed("two"), id="two"),
        pytest.param(b"\x81\xfe\x00\x05" + b"\0\0\0\0hello", id="a length in too many bytes"),
        pytest.param(b"\x81\x84\0\0\0\0\xff\xfe\xfd\xfc", id="no UTF-8"),
    ],
)
def test_everything_else_is_the_parsers(data: bytes) -> None:
    """Fragments, other kinds, compression, no mask, pieces of frames, several, nonsense."""
    assert fast_text(data) is None


def test_a_compressed_text_is_the_parsers() -> None:
    """As it comes from a client that negotiated permessage-deflate."""
    client = Protocol(Side.CLIENT)
    client.extensions = [PerMessageDeflate(False, False, 15, 15)]
    client.send_text(b"words " * 40)
    assert fast_text(b"".join(client.data_to_send())) is None


def frame_of(payload: bytes, mask: bytes, size_bytes: int) -> bytes:
    """A whole text frame, its length in 0, 2 or 8 bytes of its own (RFC 6455 §5.2)."""
    flag = {0: len(payload), 2: 126, 8: 127}[size_bytes]
    size = len(payload).to_bytes(size_bytes, "big") if size_bytes else b""
    return bytes((0x81, 0x80 | flag)) + size + mask + unmask(payload, mask)


MASKS = st.sampled_from([bytes(4), b"\0\1\0\0"]) | st.binary(min_size=4, max_size=4)
FRAMES = st.builds(
    lambda size, mask: frame_of(b"x" * size, mask, 0 if size < 126 else 2 if size < 1 << 16 else 8),
    st.sampled_from([0, 1, 2, 124, 125, 126, 127, 128, 133, 65_535, 65_536, 65_600]),
    MASKS,
)


def messages(pieces: list[bytes], short_way: bool) -> list[str]:
    """The texts of them, in order: with the short way for what it takes, or without it. As in
    `RealtimeProtocol`, it is asked between messages only."""
    server, texts = Protocol(Side.SERVER), []
    for piece in pieces:
        between = server.cur_size is None and not server.reader.buffer
        text = fast_text(piece) if short_way and between else None
        if text is not None:
            texts.append(text)
            continue
        server.receive_data(piece)
        for frame in server.events_received():
            assert isinstance(frame, Frame)
            texts.append(bytes(frame.data).decode())
    return texts


@given(frames=st.lists(FRAMES, min_size=1, max_size=3))
@example(frames=[frame_of(b"x" * 65_536, bytes(4), 8)])
def test_no_cut_changes_what_is_read(frames: list[bytes]) -> None:
    """However a client's bytes come in two reads, and in three around the beginning."""
    data = b"".join(frames)
    whole = messages([data], short_way=False)
    cuts = {*range(300), *range(len(data) - 300, len(data) + 1)} & set(range(len(data) + 1))
    for cut in cuts:
        same = messages([data[:cut], data[cut:]], short_way=True) == whole
        assert same, f"cut at {cut} of {len(data)}"  # not the texts, which are long
    for cut in range(0, min(len(data), 200), 7):
        pieces = [data[:cut], data[cut : cut + 133], data[cut + 133 :]]
        same = messages(pieces, short_way=True) == whole
        assert same, f"cut at {cut} and {cut + 133} of {len(data)}"
