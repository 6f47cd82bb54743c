"""One audio track's sound, whatever codecs it is in, one after the other."""

from __future__ import annotations

import dataclasses

import numpy as np

from gateway.media.timebase import WIRE_RATE_HZ
from gateway.rtc.codecs import Codec
from gateway.rtc.libopus import Samples
from gateway.rtc.opus import OpusTimeline
from gateway.rtc.receive_buffer import BufferCounters, Piece, PieceKind
from gateway.rtc.telephone import TelephoneTimeline


class Timeline:
    """Pieces of a receive buffer in, mono sound at 24 kHz out; over all, exactly as long as the
    pieces. What can't be decoded is concealed and counted as `bad`."""

    def __init__(self, counters: BufferCounters) -> None:
        self._opus = OpusTimeline(counters, WIRE_RATE_HZ)
        self._telephone = TelephoneTimeline()
        self._is_opus = True

    def decode(self, piece: Piece) -> Samples:
        """int16, all that is ready."""
        is_opus = piece.codec == Codec.OPUS
        if piece.kind is not PieceKind.AUDIO:
            if is_opus != self._is_opus:  # the packet behind has no copy of what was before it
                piece = dataclasses.replace(piece, payload=b"")
            return self._decoder.decode(piece)
        if is_opus == self._is_opus:
            return self._decoder.decode(piece)
        before = self._telephone.flush() if is_opus else np.zeros(0, np.int16)
        self._is_opus = is_opus
        return np.concatenate((before, self._decoder.decode(piece)))

    @property
    def _decoder(self) -> OpusTimeline | TelephoneTimeline:
        return self._opus if self._is_opus else self._telephone
