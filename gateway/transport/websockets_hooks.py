"""The only module that uses private parts of `websockets`, where it has no public API.

    unmask        a frame's payload without the client's mask
    FrameBounds   whether a parser stands between two messages, and what it has read of a frame

Written for websockets 15.0. `tests/gateway/transport/test_websockets_hooks.py` names each private
part, so that a release that moves one fails there and not in a session.

"""

from __future__ import annotations

from collections.abc import Callable

from websockets import Frame, ServerProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # of whichever module there is

unmask: Callable[[bytes, bytes], bytes] = apply_mask
"""Applies a four-byte mask to a payload, or removes it (RFC 6455 §5.3)."""


class FrameBounds:
    """Tracks where frames end in the input of a server's parser. The parser keeps no buffer of a
    partial frame, so only the end of the last frame tells whether it has begun another."""

    def __init__(self, parser: ServerProtocol) -> None:
        self._parser = parser
        self._given_bytes = 0
        self._whole_bytes = 0  # up to the end of the last complete frame, or of the handshake
        take_in = parser.recv_frame

        def noted(frame: Frame) -> None:
            self.mark()
            take_in(frame)

        parser.recv_frame = noted  # type: ignore[method-assign]

    def given(self, size_bytes: int) -> None:
        """This many bytes are about to be given to the parser."""
        self._given_bytes += size_bytes

    def mark(self) -> None:
        """A frame or the handshake ends at the parser's position."""
        self._whole_bytes = self._given_bytes - len(self._parser.reader.buffer)

    @property
    def between_messages(self) -> bool:
        """Whether the parser waits for the first byte of a message."""
        return self._whole_bytes == self._given_bytes and self._parser.cur_size is None

    def forget(self) -> None:
        """Drop a partly read frame that will not be completed. Parser and connection form a
        reference cycle, so half a message of 32 MiB would wait for the garbage collector, which
        counts objects."""
        self._parser.reader.discard()
