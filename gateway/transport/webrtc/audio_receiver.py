"""Receives one audio track: RTP packets in, the session's 24 kHz audio out. Codecs may change on
the way. No I/O, no clock."""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.transport.webrtc.codecs import Codec, Formats
from headstart.gateway.transport.webrtc.opus import OpusTimeline, Samples
from headstart.gateway.transport.webrtc.receive_buffer import (
    BufferCounters,
    Packet,
    Piece,
    PieceKind,
    ReceiveBuffer,
)
from headstart.gateway.transport.webrtc.rtp_clock import RtpClock
from headstart.gateway.transport.webrtc.telephone import TelephoneTimeline


class Timeline:
    """Pieces of a receive buffer in, mono audio at 24 kHz out, in total exactly as long as the
    pieces. What cannot be decoded is concealed and counted as `bad`."""

    def __init__(self, counters: BufferCounters) -> None:
        self._opus = OpusTimeline(counters, CLIENT_RATE_HZ)
        self._telephone = TelephoneTimeline()
        self._is_opus = True

    def decode(self, piece: Piece) -> Samples:
        """int16[n]: all audio that is ready."""
        is_opus = piece.codec == Codec.OPUS
        if piece.kind is not PieceKind.AUDIO:
            if is_opus != self._is_opus:  # the next packet has no copy of earlier audio
                piece = msgspec.structs.replace(piece, payload=b"")
            return self._decoder.decode(piece)
        if is_opus == self._is_opus:
            return self._decoder.decode(piece)
        before = self._telephone.flush() if is_opus else np.zeros(0, np.int16)
        self._is_opus = is_opus
        return np.concatenate((before, self._decoder.decode(piece)))

    @property
    def _decoder(self) -> OpusTimeline | TelephoneTimeline:
        return self._opus if self._is_opus else self._telephone


class RtpPacketLike(Protocol):
    """What is read of an RTP packet."""

    @property
    def payload_type(self) -> int: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def ssrc(self) -> int: ...
    @property
    def payload(self) -> bytes: ...


class ReceivedAudio(msgspec.Struct, frozen=True, gc=False):
    """s16 mono at 24 kHz. `received_ns` and `timestamp` (RTP at 48 kHz, unwrapped) belong to the
    packet that carried it; None for filling."""

    pcm24k: bytes
    kind: PieceKind
    received_ns: int | None
    timestamp: int | None


class AudioReceiver:
    """The receive buffer and decoders of one track. All that it returns is gapless: lost or omitted
    parts are filled."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._buffer = ReceiveBuffer()
        self._timeline = Timeline(self._buffer.counters)
        self._clock = RtpClock()
        self._source: int | None = None

    @property
    def counters(self) -> BufferCounters:
        return self._buffer.counters

    @property
    def wait_ms(self) -> float:
        """How long the buffer waits for packets that are out of turn."""
        return self._buffer.wait_ms

    @property
    def due_ns(self) -> int | None:
        """When to call `pull` if no packet arrives before, in ns."""
        return self._buffer.due_ns

    def receive(self, packet: RtpPacketLike, now_ns: int) -> list[ReceivedAudio]:
        """All audio that is due with one more RTP packet; a change of its SSRC begins another
        stream. The payload type selects the codec; packets of a type that was not negotiated are
        ignored."""
        codec = self._formats.get(packet.payload_type)
        if codec is None:
            self.counters.foreign += 1
            return self.pull(now_ns)
        if not codec.is_sound:
            self.counters.soundless += 1
            if packet.ssrc == self._source:
                self._buffer.skip(packet.sequence_number, now_ns)
            return self.pull(now_ns)
        payload = packet.payload
        samples = codec.samples(payload)
        if samples is None:
            self.counters.bad += 1
            return self.pull(now_ns)
        if packet.ssrc != self._source:
            if self._source is not None:
                self._buffer.restart()
            self._source, self._clock = packet.ssrc, RtpClock()
        number = packet.sequence_number
        timestamp = self._clock.place(number, packet.timestamp, samples, codec.rate_hz)
        placed = Packet(number, timestamp, payload, samples, codec)
        return self._decoded(self._buffer.take(placed, now_ns))

    def pull(self, now_ns: int) -> list[ReceivedAudio]:
        """All audio that is due without a packet."""
        return self._decoded(self._buffer.pull(now_ns))

    def _decoded(self, pieces: list[Piece]) -> list[ReceivedAudio]:
        sounds = []
        for piece in pieces:
            pcm = self._timeline.decode(piece).tobytes()
            received_ns = piece.received_ns if piece.kind is PieceKind.AUDIO else None
            if pcm:
                sounds.append(ReceivedAudio(pcm, piece.kind, received_ns, piece.timestamp))
        return sounds
