"""A network in virtual time: what a sender says, and when each packet reaches the receiver."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.transport.webrtc.receive_buffer import (
    RTP_SAMPLES_PER_MS,
    BufferSettings,
    Packet,
    Piece,
    PieceKind,
    ReceiveBuffer,
)

FRAME_MS = 20
FRAME_SAMPLES = FRAME_MS * RTP_SAMPLES_PER_MS
VOICE = b"\x78" + bytes(60)
"""A payload of ordinary size; tests write the packet's number behind its first byte."""


@dataclass(frozen=True)
class Sent:
    """One packet of the sender's. `number` counts frames from 0; times in virtual ms."""

    number: int
    sent_ms: float
    packet: Packet


def spoken(count: int, first_sequence: int = 0, first_timestamp: int = 0) -> list[Sent]:
    """`count` frames, one each 20 ms, with RTP numbers that wrap as they do on the wire."""
    return [
        Sent(
            i,
            i * FRAME_MS,
            Packet(
                (first_sequence + i) & 0xFFFF,
                (first_timestamp + i * FRAME_SAMPLES) & 0xFFFF_FFFF,
                VOICE[:1] + i.to_bytes(8, "big") + VOICE[9:],
                FRAME_SAMPLES,
            ),
        )
        for i in range(count)
    ]


@dataclass
class Delivery:
    """What came out of the buffer."""

    buffer: ReceiveBuffer
    pieces: list[tuple[float, Piece]] = field(default_factory=list)
    """With the virtual ms at which each was released."""

    @property
    def samples(self) -> int:
        return sum(piece.samples for _, piece in self.pieces)

    def numbers(self) -> list[int]:
        """The frames that came out as they were sent, in order."""
        return [number_of(p) for _, p in self.pieces if p.kind is PieceKind.AUDIO]

    def latency_ms(self, sent: Iterable[Sent], begin_ms: float, end_ms: float) -> float:
        """Mean time from sending to release, of frames sent in that stretch."""
        sent_ms = {s.number: s.sent_ms for s in sent if begin_ms <= s.sent_ms < end_ms}
        waits = [
            at - sent_ms[number_of(piece)]
            for at, piece in self.pieces
            if piece.kind is PieceKind.AUDIO and number_of(piece) in sent_ms
        ]
        return sum(waits) / len(waits)

    def timeline_ok(self, frames: int) -> float:
        """Share of the sent frames' time that is itself or concealed, at its place in time."""
        at, good = 0, 0
        for _, piece in self.pieces:
            end = min(at + piece.samples, frames * FRAME_SAMPLES)
            right = piece.kind is PieceKind.CONCEALED
            if piece.kind is PieceKind.AUDIO:
                right = number_of(piece) * FRAME_SAMPLES == at
            good += max(0, end - at) if right else 0
            at += piece.samples
        return good / (frames * FRAME_SAMPLES)


def number_of(piece: Piece) -> int:
    return int.from_bytes(piece.payload[1:9], "big")


def deliver(
    arrivals: Iterable[tuple[float, Packet]],
    settings: BufferSettings | None = None,
    until_ms: float | None = None,
) -> Delivery:
    """Run a buffer over `(arrival in ms, packet)`, waking it when it asked to be."""
    delivery = Delivery(ReceiveBuffer(settings))
    buffer = delivery.buffer
    queue = [(ms, i, packet) for i, (ms, packet) in enumerate(arrivals)]
    heapq.heapify(queue)
    now_ms = 0.0
    while queue:
        due_ms = buffer.due_ns / NS_PER_MS if buffer.due_ns is not None else float("inf")
        if due_ms < queue[0][0]:
            now_ms = max(now_ms, due_ms)
            due = buffer.pull(round(now_ms * NS_PER_MS))
        else:
            now_ms, _, packet = heapq.heappop(queue)
            due = buffer.take(packet, round(now_ms * NS_PER_MS))
        delivery.pieces += [(now_ms, piece) for piece in due]
    while buffer.due_ns is not None and buffer.due_ns <= (until_ms or now_ms + 100) * NS_PER_MS:
        now_ns = buffer.due_ns
        delivery.pieces += [(now_ns / NS_PER_MS, p) for p in buffer.pull(now_ns)]
        assert buffer.due_ns is None or buffer.due_ns > now_ns, "it asks to be woken for nothing"
    return delivery


def losing(
    sent: Iterable[Sent],
    lost: Callable[[Sent], bool],
    delay_ms: Callable[[Sent], float] = lambda _: 30.0,
) -> list[tuple[float, Packet]]:
    """A path that loses some packets and delays the others."""
    return [(s.sent_ms + delay_ms(s), s.packet) for s in sent if not lost(s)]


def at_random(share: float, seed: int) -> Callable[[Sent], bool]:
    """Each packet is lost with that probability, the first one never."""
    rng = random.Random(seed)
    return lambda sent: sent.number > 0 and rng.random() < share
