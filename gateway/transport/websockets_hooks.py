"""The one place that reaches into the private parts of `websockets`, for what it offers no public
way to.

    unmask        a frame's payload as it was before the client masked it
    FrameBounds   whether a parser stands between two messages, and what it has read of a frame

Written for websockets 15.0. `tests/gateway/transport/test_websockets_hooks.py` names each
private part, so that a release that moves one says so there and not in a session.
"""

from __future__ import annotations

from collections.abc import Callable

from websockets import Frame, ServerProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # of whichever module there is

unmask: Callable[[bytes, bytes], bytes] = apply_mask
"""Payload and four bytes of mask to plain bytes, or back (RFC 6455 §5.3)."""


class FrameBounds:
    """Where the frames end in what a server's parser was given. It keeps what it has read of a
    frame in no buffer, so that only the end of the last one tells whether it has begun another."""

    def __init__(self, parser: ServerProtocol) -> None:
        self._parser = parser
        self._given_bytes = 0
        self._whole_bytes = 0  # of them, up to the end of the last whole frame, or of the handshake
        take_in = parser.recv_frame

        def noted(frame: Frame) -> None:
            self.mark()
            take_in(frame)

        parser.recv_frame = noted  # type: ignore[method-assign]

    def given(self, size_bytes: int) -> None:
        """So much more is about to be given to the parser."""
        self._given_bytes += size_bytes

    def mark(self) -> None:
        """A frame or the handshake has ended where the parser stands."""
        self._whole_bytes = self._given_bytes - len(self._parser.reader.buffer)

    @property
    def between_messages(self) -> bool:
        """The parser waits for the first byte of one."""
        return self._whole_bytes == self._given_bytes and self._parser.cur_size is None

    def forget(self) -> None:
        """Drop what was read of a frame that does not come to its end. Parser and connection know
        each other: half a message of 32 MiB would wait for the collector, which counts objects."""
        self._parser.reader.discard()
