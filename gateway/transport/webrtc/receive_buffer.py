"""The receive buffer: RTP audio packets in, one gapless timeline out. No I/O, no clock, no codec.

Lengths and times of packets are at 48 kHz, whatever their codec counts in
(`headstart.gateway.transport.webrtc.rtp_clock`).

Whoever listens here is a recogniser, not a loudspeaker: it needs order and no holes, but no even
pace. So nothing that is in order ever waits: it leaves in the `pull` after it came, and what the
network delayed comes in one burst and is caught up with at once. Only packets behind a hole wait,
until the missing one comes or the hole's deadline passes; then the hole is filled by its length in
RTP time. No waiting time outlives its hole, so latency returns to nothing by itself.

    hole's deadline   `wait`, 20 to 80 ms from the first packet behind it: as long as reordered
                      packets are late here, and shorter again after calm
    lost packets      concealed for `conceal_ms`, then silence
    DTX               sequence numbers go on and timestamps jump: silence
    no sound in it    a packet that only holds its place (`skip`): as DTX
    nothing comes     silence at the clock's pace after `stall_ms` (at once when the sender had
                      announced DTX), at most `longest_fill_ms`; then time stands still. Packets
                      that were only delayed are taken all the same: their words are worth more
                      than the silence is wrong.
    another stream    a far jump of sequence numbers counts once two packets agree on it

Bounds: `capacity` packets behind a hole, after which it is given up before its deadline; a fill is
never longer than real time passed (and `JITTER_SLACK_NS`), so timestamps cannot order hours of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headstart.gateway.audio.clock import NS_PER_MS

RTP_RATE_HZ = 48_000  # Opus's clock, RFC 7587 §4.1
RTP_SAMPLES_PER_MS = RTP_RATE_HZ // 1000
SILENCE_STEP_SAMPLES = 20 * RTP_SAMPLES_PER_MS
DTX_PAYLOAD_BYTES = 2  # a packet this short says "silence from here on", RFC 6716 §2.1.9
MAX_DROPOUT = 1000  # packets; a jump further ahead is another stream, or garbage
MAX_MISORDER = 100  # packets; the same, backwards
GIVEN_UP_KEPT = 512  # sequence numbers remembered, to tell a late packet from a second copy
JITTER_SLACK_NS = 1_000 * NS_PER_MS
CALM_NS = 2_000 * NS_PER_MS  # without a late or reordered packet, after which the wait shrinks
CALM_STEP_NS = 20 * NS_PER_MS
LATE_MARGIN_NS = 10 * NS_PER_MS


class PieceKind(StrEnum):
    AUDIO = "audio"
    CONCEALED = "concealed"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Packet:
    """One RTP packet of audio. `samples`: its length at 48 kHz, 0 if it has no sound; both RTP
    numbers as on the wire; `codec` is handed on to whoever decodes."""

    sequence: int
    timestamp: int
    payload: bytes
    samples: int
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next `samples` (48 kHz) of the timeline. `payload` and `codec`: the packet's; where all
    that was lost is CONCEALED, those of the packet behind, which may hold a copy of the end of it.
    `timestamp`, the packet's RTP time unwrapped, of AUDIO only. `received_ns`: when the packet
    came, or the filling was decided on."""

    kind: PieceKind
    samples: int
    received_ns: int
    payload: bytes = b""
    timestamp: int | None = None
    codec: str = ""


@dataclass(frozen=True, slots=True)
class BufferSettings:
    wait_min_ms: int = 20
    wait_max_ms: int = 80
    conceal_ms: int = 60
    stall_ms: int = 200
    longest_fill_ms: int = 12_000
    capacity: int = 64


@dataclass(slots=True)
class BufferCounters:
    """Packets, except where the name says samples (48 kHz)."""

    received: int = 0
    lost: int = 0  # given up; some of them come late
    late: int = 0
    duplicate: int = 0
    reordered: int = 0  # came after a later one, and in time
    bad: int = 0  # whoever owns the codec counts here what it cannot read,
    foreign: int = 0  # here what is of a payload type that was not agreed on
    soundless: int = 0  # and here key presses and comfort noise
    dtx: int = 0  # pauses that the sender left out
    stalls: int = 0
    restarts: int = 0
    audio_samples: int = 0
    concealed_samples: int = 0
    silence_samples: int = 0


@dataclass(frozen=True, slots=True)
class _Held:
    """A packet on the unwrapped timeline."""

    timestamp: int
    packet: Packet
    received_ns: int


def unwrapped(value: int, near: int, bits: int) -> int:
    """The number congruent to `value` modulo 2**bits that is nearest to `near`."""
    half = 1 << (bits - 1)
    return near + ((value - near + half) & ((1 << bits) - 1)) - half


class ReceiveBuffer:
    """See the module's docstring. Single owner; `now_ns` never goes back."""

    def __init__(self, settings: BufferSettings | None = None) -> None:
        self.settings = settings or BufferSettings()
        self.counters = BufferCounters()
        self._wait_min_ns = self.settings.wait_min_ms * NS_PER_MS
        self._wait_max_ns = self.settings.wait_max_ms * NS_PER_MS
        self._wait_ns = self._wait_min_ns
        self._calm_since_ns = 0
        self._started = False
        self._next_sequence = 0
        self._next_timestamp = 0
        self._held: dict[int, _Held] = {}  # by unwrapped sequence number, none below the next
        self._given_up: dict[int, int] = {}  # sequence number -> when the hole was noticed, ns
        self._lost_before_next = 0
        self._heard_ns = 0  # the newest packet's arrival, late ones and second copies aside
        self._released_ns = 0  # the arrival of the last one released
        self._ahead_samples = 0  # silence put in since then because nothing came
        self._announced_dtx = False
        self._strange: Packet | None = None

    @property
    def wait_ms(self) -> float:
        """How long a hole is waited for at present."""
        return self._wait_ns / NS_PER_MS

    @property
    def held_packets(self) -> int:
        return len(self._held)

    # --- in --------------------------------------------------------------------------------------

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
        self._note_order(sequence, now_ns)
        timestamp = unwrapped(packet.timestamp, self._next_timestamp, 32)
        self._held[sequence] = _Held(timestamp, packet, now_ns)
        self._heard_ns = now_ns

    def skip(self, sequence: int, now_ns: int) -> None:
        """A packet with no sound in it holds this place: nothing is missing there."""
        if not self._started:
            return
        sequence = unwrapped(sequence, self._next_sequence, 16)
        ahead = sequence - self._next_sequence
        if 0 <= ahead <= MAX_DROPOUT and sequence not in self._held:
            nothing = Packet(sequence & 0xFFFF, 0, b"", samples=0)
            self._held[sequence] = _Held(self._next_timestamp, nothing, now_ns)

    def restart(self) -> None:
        """Another stream begins: what is held of the old one is dropped, the timeline goes on."""
        self.counters.restarts += 1
        self._held.clear()
        self._given_up.clear()
        self._started = False

    def _begin(self, packet: Packet) -> None:
        self._started = True
        self._next_sequence, self._next_timestamp = packet.sequence, packet.timestamp
        self._lost_before_next = 0

    def _is_another_stream(self, packet: Packet) -> bool:
        """A single packet far off is dropped; the second in a row is believed (RFC 3550 §A.1)."""
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
        """A packet that fills a hole in time tells how long holes are worth waiting for."""
        later = [held.received_ns for other, held in self._held.items() if other > sequence]
        if later:
            self.counters.reordered += 1
            self._widen(now_ns - min(later), now_ns)

    def _widen(self, late_ns: int, now_ns: int) -> None:
        if late_ns <= self._wait_max_ns:  # what comes later still is not worth waiting for
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
                pieces += self._release(held, now_ns)
            elif now_ns >= self._deadline_ns() or len(self._held) > self.settings.capacity:
                self._give_up_hole()
            else:
                return pieces
        pieces += self._stall(now_ns)
        return pieces

    @property
    def due_ns(self) -> int | None:
        """When `pull` should be called next if nothing comes until then; None: only a packet
        matters."""
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
    def _longest_fill_samples(self) -> int:
        return self.settings.longest_fill_ms * RTP_SAMPLES_PER_MS

    @property
    def _stall_ns(self) -> int:
        if self._announced_dtx:
            return self._wait_ns + _ns(SILENCE_STEP_SAMPLES)
        return self.settings.stall_ms * NS_PER_MS

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

    def _release(self, held: _Held, now_ns: int) -> Iterator[Piece]:
        """A packet, behind whatever fills the timeline up to it."""
        packet = held.packet
        if not packet.samples:
            self._next_sequence += 1
            self._announced_dtx = True
            return
        gap = held.timestamp - self._next_timestamp - self._ahead_samples
        elapsed_ns = held.received_ns - self._released_ns + JITTER_SLACK_NS
        gap = min(gap, self._longest_fill_samples - self._ahead_samples, _samples(elapsed_ns))
        if gap > 0:
            yield from self._fill(gap, packet, now_ns)
        self._next_sequence += 1
        end = held.timestamp + packet.samples
        if held.timestamp < self._next_timestamp - RTP_RATE_HZ:  # the sender set its clock back
            self._next_timestamp = end
        self._next_timestamp = max(self._next_timestamp, end)
        self._released_ns = held.received_ns
        self._ahead_samples = 0
        self._lost_before_next = 0
        self._announced_dtx = len(packet.payload) <= DTX_PAYLOAD_BYTES
        self.counters.audio_samples += packet.samples
        yield Piece(
            PieceKind.AUDIO,
            packet.samples,
            held.received_ns,
            packet.payload,
            held.timestamp,
            packet.codec,
        )

    def _fill(self, gap: int, behind: Packet, now_ns: int) -> Iterator[Piece]:
        concealed = 0
        if not self._lost_before_next:
            self.counters.dtx += 1
        elif not self._ahead_samples:  # nothing can be drawn out over silence
            concealed = min(gap, self.settings.conceal_ms * RTP_SAMPLES_PER_MS)
            self.counters.concealed_samples += concealed
            copy = behind.payload if concealed == gap else b""
            yield Piece(PieceKind.CONCEALED, concealed, now_ns, copy, codec=behind.codec)
        if gap > concealed:
            yield self._silence(gap - concealed, now_ns)

    def _silence(self, samples: int, now_ns: int) -> Piece:
        self.counters.silence_samples += samples
        return Piece(PieceKind.SILENCE, samples, now_ns)

    def _stall(self, now_ns: int) -> Iterator[Piece]:
        """Silence for the time in which nothing came."""
        gone_ns = now_ns - self._heard_ns
        if gone_ns < self._stall_ns and not self._ahead_samples:
            return
        owed = min(_samples(gone_ns), self._longest_fill_samples) - self._ahead_samples
        owed -= owed % SILENCE_STEP_SAMPLES
        if owed <= 0:
            return
        self.counters.stalls += not self._ahead_samples
        self._ahead_samples += owed
        yield self._silence(owed, now_ns)


def _samples(ns: int) -> int:
    return ns * RTP_SAMPLES_PER_MS // NS_PER_MS


def _ns(samples: int) -> int:
    return samples * NS_PER_MS // RTP_SAMPLES_PER_MS
