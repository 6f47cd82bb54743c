"""The receive buffer: RTP audio packets in, one gapless timeline out. No I/O, no clock, no codec.

Durations and times of packets are at 48 kHz, whatever the codec's RTP clock rate
(`headstart.gateway.transport.webrtc.rtp_clock`).

The consumer is a recogniser, not a loudspeaker: it needs order and no gaps, but no even pace. So
packets in order never wait: `take` passes them on, and a burst after a network delay leaves at
once. Only packets after a gap wait, until the missing one arrives or the gap's deadline passes;
then the gap is filled by its length in RTP time. No wait outlasts its gap, so the latency returns
to zero by itself.

    gap deadline      `wait`, 20 to 80 ms from the first packet after the gap: as long as
                      reordered packets are late here, and shorter again after a calm time
    lost packets      concealed for `conceal_ms`, then silence
    DTX               sequence numbers continue and timestamps jump: silence
    no audio in it    a packet that only takes up its sequence number (`skip`): as DTX
    nothing arrives   silence at the clock's pace after `stall_ms` (at once if the sender had
                      announced DTX), at most `longest_fill_ms`; then time stands still. Packets
                      that were only delayed are still used: losing their words would be worse
                      than extra silence.
    another stream    a large jump of sequence numbers counts once two packets agree on it

Bounds: `capacity` packets after a gap, after which it is given up before its deadline. A fill is
never longer than the real time passed (plus `JITTER_SLACK_NS`), so timestamps cannot request hours
of silence.

"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from headstart.gateway.audio.clock import NS_PER_MS

RTP_RATE_HZ = 48_000  # Opus's clock, RFC 7587 §4.1
RTP_SAMPLES_PER_MS = RTP_RATE_HZ // 1000
SILENCE_STEP_SAMPLES = 20 * RTP_SAMPLES_PER_MS
DTX_PAYLOAD_BYTES = 2  # a packet this short announces silence, RFC 6716 §2.1.9
MAX_DROPOUT = 1000  # packets; a jump further ahead is another stream, or garbage
MAX_MISORDER = 100  # packets; the same, backwards
GIVEN_UP_KEPT = 512  # sequence numbers remembered, to tell a late packet from a duplicate
JITTER_SLACK_NS = 1_000 * NS_PER_MS
CALM_NS = 2_000 * NS_PER_MS  # time without a late or reordered packet after which the wait shrinks
CALM_STEP_NS = 20 * NS_PER_MS
LATE_MARGIN_NS = 10 * NS_PER_MS


class PieceKind(StrEnum):
    """Where a piece's sound comes from: a packet, a decoder that fills a loss, or nowhere."""

    AUDIO = "audio"
    CONCEALED = "concealed"
    SILENCE = "silence"


class Packet(msgspec.Struct, frozen=True, gc=False):
    """One RTP audio packet. `samples`: its duration at 48 kHz, 0 if it has no audio; RTP sequence
    number and timestamp as on the wire; `codec` is passed through to the decoder."""

    sequence: int
    timestamp: int
    payload: bytes
    samples: int
    codec: str = ""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The next `samples` (48 kHz) of the timeline. `payload` and `codec`: the packet's. If the
    whole gap is CONCEALED, those of the packet after it, which may contain a copy of the gap's end.
    `timestamp`: the packet's unwrapped RTP time, for AUDIO only. `received_ns`: when the packet
    arrived, or the fill was decided."""

    kind: PieceKind
    samples: int
    received_ns: int
    payload: bytes = b""
    timestamp: int | None = None
    codec: str = ""


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """The wait for late packets lies between `wait_min_ms` and `wait_max_ms`. The first
    `conceal_ms` of a gap are concealed, the rest is silence, of `longest_fill_ms` at most. Without
    a packet for `stall_ms` the stream has stalled. `capacity`: packets held at a time."""

    wait_min_ms: int = 20
    wait_max_ms: int = 80
    conceal_ms: int = 60
    stall_ms: int = 200
    longest_fill_ms: int = 12_000
    capacity: int = 64


@dataclass(slots=True)
class BufferCounters:
    """Counts of packets, except where the name says samples (48 kHz)."""

    received: int = 0
    lost: int = 0  # given up; some of them arrive late
    late: int = 0
    duplicate: int = 0
    reordered: int = 0  # arrived after a later packet, but in time
    bad: int = 0  # the owner of the codec counts here: undecodable packets,
    foreign: int = 0  # packets of a payload type that was not negotiated,
    soundless: int = 0  # and key presses and comfort noise
    dtx: int = 0  # pauses that the sender omitted
    stalls: int = 0
    restarts: int = 0
    audio_samples: int = 0
    concealed_samples: int = 0
    silence_samples: int = 0


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A packet on the unwrapped timeline."""

    timestamp: int
    packet: Packet
    received_ns: int


def unwrapped(value: int, near: int, bits: int) -> int:
    """The number congruent to `value` modulo 2**bits that is nearest to `near`."""
    half = 1 << (bits - 1)
    return near + ((value - near + half) & ((1 << bits) - 1)) - half


class ReceiveBuffer:
    """See the module's docstring. Single owner; `now_ns` never decreases."""

    def __init__(self, settings: BufferSettings | None = None) -> None:
        self.settings = settings or BufferSettings()
        self.counters = BufferCounters()
        self._wait_min_ns = self.settings.wait_min_ms * NS_PER_MS
        self._wait_max_ns = self.settings.wait_max_ms * NS_PER_MS
        self._wait_ns = self._wait_min_ns
        self._unannounced_stall_ns = self.settings.stall_ms * NS_PER_MS
        self._longest_fill_samples = self.settings.longest_fill_ms * RTP_SAMPLES_PER_MS
        self._calm_since_ns = 0
        self._started = False
        self._next_sequence = 0
        self._next_timestamp = 0
        self._held: dict[int, _Held] = {}  # by unwrapped sequence number; none below the next one
        self._given_up: dict[int, int] = {}  # sequence number -> when the gap was noticed, ns
        self._lost_before_next = 0
        self._heard_ns = 0  # arrival of the newest packet, without late ones and duplicates
        self._released_ns = 0  # arrival of the last released packet
        self._ahead_samples = 0  # silence inserted since then because nothing arrived
        self._announced_dtx = False
        self._strange: Packet | None = None

    @property
    def wait_ms(self) -> float:
        """How long a gap is currently waited for, in ms."""
        return self._wait_ns / NS_PER_MS

    @property
    def held_packets(self) -> int:
        return len(self._held)

    # --- in --------------------------------------------------------------------------------------

    def take(self, packet: Packet, now_ns: int) -> list[Piece]:
        """`push` and `pull` in one. Most packets are the next one while none waits: they are passed
        on without being ordered."""
        is_next = packet.sequence == self._next_sequence & 0xFFFF
        if not is_next or self._held or not self._started:
            self.push(packet, now_ns)
            return self.pull(now_ns)
        self.counters.received += 1
        self._strange = None
        self._heard_ns = now_ns
        if self._wait_ns > self._wait_min_ns:
            self._shrink(now_ns)
        timestamp = unwrapped(packet.timestamp, self._next_timestamp, 32)
        return self._release(timestamp, packet, now_ns, now_ns)

    def push(self, packet: Packet, now_ns: int) -> None:
        """Take one packet; what is ready then comes from `pull`."""
        self.counters.received += 1
        if not self._started:
            self._begin(packet)
            self._calm_since_ns = self._released_ns = now_ns
        sequence = unwrapped(packet.sequence, self._next_sequence, 16)
        if not -MAX_MISORDER <= sequence - self._next_sequence <= MAX_DROPOUT:
            if not self._is_another_stream(packet):
                return
            self.restart()
            self._begin(packet)
            sequence = self._next_sequence
        self._strange = None
        if sequence < self._next_sequence or sequence in self._held:
            self._late_or_again(sequence, now_ns)
            return
        if self._held:
            self._note_order(sequence, now_ns)
        timestamp = unwrapped(packet.timestamp, self._next_timestamp, 32)
        self._held[sequence] = _Held(timestamp, packet, now_ns)
        self._heard_ns = now_ns

    def skip(self, sequence: int, now_ns: int) -> None:
        """A packet without audio takes this sequence number: nothing is missing there."""
        if not self._started:
            return
        sequence = unwrapped(sequence, self._next_sequence, 16)
        ahead = sequence - self._next_sequence
        if 0 <= ahead <= MAX_DROPOUT and sequence not in self._held:
            nothing = Packet(sequence & 0xFFFF, 0, b"", samples=0)
            self._held[sequence] = _Held(self._next_timestamp, nothing, now_ns)

    def restart(self) -> None:
        """Another stream begins: packets held of the old one are dropped, the timeline
        continues."""
        self.counters.restarts += 1
        self._held.clear()
        self._given_up.clear()
        self._started = False

    def _begin(self, packet: Packet) -> None:
        self._started = True
        self._next_sequence, self._next_timestamp = packet.sequence, packet.timestamp
        self._lost_before_next = 0

    def _is_another_stream(self, packet: Packet) -> bool:
        """A single packet far off is dropped; the second in a row is accepted (RFC 3550 §A.1)."""
        before, self._strange = self._strange, packet
        return before is not None and packet.sequence == (before.sequence + 1) & 0xFFFF

    def _late_or_again(self, sequence: int, now_ns: int) -> None:
        noticed_ns = self._given_up.pop(sequence, None)
        if noticed_ns is None:
            self.counters.duplicate += 1
            return
        self.counters.late += 1
        self._widen(now_ns - noticed_ns, now_ns)

    def _note_order(self, sequence: int, now_ns: int) -> None:
        """Learn from a packet that fills a gap in time how long a gap is worth waiting for."""
        later = [held.received_ns for other, held in self._held.items() if other > sequence]
        if later:
            self.counters.reordered += 1
            self._widen(now_ns - min(later), now_ns)

    def _widen(self, late_ns: int, now_ns: int) -> None:
        if late_ns <= self._wait_max_ns:  # anything later is not worth waiting for
            wanted_ns = min(late_ns + LATE_MARGIN_NS, self._wait_max_ns)
            self._wait_ns = max(self._wait_ns, wanted_ns)
        self._calm_since_ns = now_ns

    # --- out -------------------------------------------------------------------------------------

    def pull(self, now_ns: int) -> list[Piece]:
        """All of the timeline that is due, in order."""
        if not self._started:
            return []
        self._shrink(now_ns)
        pieces: list[Piece] = []
        while self._held:
            held = self._held.pop(self._next_sequence, None)
            if held is not None:
                pieces += self._release(held.timestamp, held.packet, held.received_ns, now_ns)
            elif now_ns >= self._deadline_ns() or len(self._held) > self.settings.capacity:
                self._give_up_hole()
            else:
                return pieces
        if self._heard_ns != now_ns or self._ahead_samples:
            pieces += self._stall(now_ns)
        return pieces

    @property
    def due_ns(self) -> int | None:
        """When to call `pull` if no packet arrives before, in ns; None: only after a packet."""
        if not self._started:
            return None
        if self._held:
            return self._deadline_ns()
        if self._ahead_samples >= self._longest_fill_samples:
            return None
        if self._ahead_samples == 0:
            return self._heard_ns + self._stall_ns
        return self._heard_ns + _ns(self._ahead_samples + SILENCE_STEP_SAMPLES)

    @property
    def _stall_ns(self) -> int:
        if self._announced_dtx:
            return self._wait_ns + _ns(SILENCE_STEP_SAMPLES)
        return self._unannounced_stall_ns

    def _deadline_ns(self) -> int:
        return min(held.received_ns for held in self._held.values()) + self._wait_ns

    def _shrink(self, now_ns: int) -> None:
        while self._wait_ns > self._wait_min_ns and now_ns - self._calm_since_ns >= CALM_NS:
            self._wait_ns = max(self._wait_min_ns, self._wait_ns - CALM_STEP_NS)
            self._calm_since_ns += CALM_NS

    def _give_up_hole(self) -> None:
        noticed_ns = min(held.received_ns for held in self._held.values())
        found = min(self._held)
        for sequence in range(self._next_sequence, found):
            self._given_up[sequence] = noticed_ns
        while len(self._given_up) > GIVEN_UP_KEPT:
            del self._given_up[next(iter(self._given_up))]
        self._lost_before_next = found - self._next_sequence
        self.counters.lost += self._lost_before_next
        self._next_sequence = found

    def _release(
        self, timestamp: int, packet: Packet, received_ns: int, now_ns: int
    ) -> list[Piece]:
        """A packet, after the fill up to it. `timestamp`: its own, unwrapped."""
        self._next_sequence += 1
        samples, payload = packet.samples, packet.payload
        if not samples:
            self._announced_dtx = True
            return []
        gap = timestamp - self._next_timestamp - self._ahead_samples
        pieces = self._fill(gap, packet, received_ns, now_ns) if gap > 0 else []
        end = timestamp + samples
        # Not backwards, unless the sender set its clock back.
        if end > self._next_timestamp or timestamp < self._next_timestamp - RTP_RATE_HZ:
            self._next_timestamp = end
        self._released_ns = received_ns
        self._ahead_samples = 0
        self._lost_before_next = 0
        self._announced_dtx = len(payload) <= DTX_PAYLOAD_BYTES
        self.counters.audio_samples += samples
        pieces.append(
            Piece(PieceKind.AUDIO, samples, received_ns, payload, timestamp, packet.codec)
        )
        return pieces

    def _fill(self, gap: int, behind: Packet, received_ns: int, now_ns: int) -> list[Piece]:
        elapsed_ns = received_ns - self._released_ns + JITTER_SLACK_NS
        gap = min(gap, self._longest_fill_samples - self._ahead_samples, _samples(elapsed_ns))
        if gap <= 0:
            return []
        pieces: list[Piece] = []
        concealed = 0
        if not self._lost_before_next:
            self.counters.dtx += 1
        elif not self._ahead_samples:  # nothing can be concealed from silence
            concealed = min(gap, self.settings.conceal_ms * RTP_SAMPLES_PER_MS)
            self.counters.concealed_samples += concealed
            copy = behind.payload if concealed == gap else b""
            pieces.append(Piece(PieceKind.CONCEALED, concealed, now_ns, copy, codec=behind.codec))
        if gap > concealed:
            pieces.append(self._silence(gap - concealed, now_ns))
        return pieces

    def _silence(self, samples: int, now_ns: int) -> Piece:
        self.counters.silence_samples += samples
        return Piece(PieceKind.SILENCE, samples, now_ns)

    def _stall(self, now_ns: int) -> list[Piece]:
        """Silence for the time in which nothing arrived."""
        gone_ns = now_ns - self._heard_ns
        if gone_ns < self._stall_ns and not self._ahead_samples:
            return []
        owed = min(_samples(gone_ns), self._longest_fill_samples) - self._ahead_samples
        owed -= owed % SILENCE_STEP_SAMPLES
        if owed <= 0:
            return []
        self.counters.stalls += not self._ahead_samples
        self._ahead_samples += owed
        return [self._silence(owed, now_ns)]


def _samples(ns: int) -> int:
    return ns * RTP_SAMPLES_PER_MS // NS_PER_MS


def _ns(samples: int) -> int:
    return samples * NS_PER_MS // RTP_SAMPLES_PER_MS
