import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.transport.webrtc.receive_buffer import (
    MAX_DROPOUT,
    RTP_SAMPLES_PER_MS,
    BufferSettings,
    Packet,
    PieceKind,
    ReceiveBuffer,
    unwrapped,
)
from tests.gateway.transport.webrtc.network import (
    FRAME_MS,
    FRAME_SAMPLES,
    VOICE,
    Sent,
    at_random,
    deliver,
    losing,
    number_of,
    spoken,
)

NETWORK_MS = 30.0


def never(_: Sent) -> bool:
    return False


def test_what_is_in_order_never_waits() -> None:
    """Without loss each frame leaves the moment it comes, however uneven that is."""
    sent = spoken(500)
    rng = random.Random(1)
    at, arrivals = 0.0, []
    for s in sent:
        at = max(at, s.sent_ms + rng.uniform(0, 150))  # jitter, in order
        arrivals.append((at, s.packet))
    got = deliver(arrivals)
    assert got.numbers() == list(range(500))
    assert got.timeline_ok(500) == 1.0
    assert [ms for ms, _ in got.pieces] == [ms for ms, _ in arrivals]


@pytest.mark.parametrize("seed", range(5))
def test_five_percent_loss(seed: int) -> None:
    """At least 99 % of the timeline is right or concealed, and within 2 s of the last loss the
    latency is what it was before the first."""
    sent = spoken(1000)
    random_loss = at_random(0.05, seed)

    def lost(s: Sent) -> bool:
        return 100 <= s.number < 800 and random_loss(s)

    got = deliver(losing(sent, lost))
    assert got.buffer.counters.lost > 20
    assert got.timeline_ok(1000) >= 0.99
    before = got.latency_ms(sent, 0, 2000)
    assert before == NETWORK_MS
    assert got.latency_ms(sent, 18_000, 20_000) == before


def test_latency_comes_back_under_lasting_loss() -> None:
    """With 5 % lost for good, the mean latency stays within 3 ms of the network's own."""
    sent = spoken(3000)
    got = deliver(losing(sent, at_random(0.05, 3)))
    assert got.latency_ms(sent, 40_000, 60_000) <= NETWORK_MS + 3


def test_one_packet_lost_of_599() -> None:
    """It is concealed at its place, and after it latency is what it was."""
    sent = spoken(599)
    got = deliver(losing(sent, lambda s: s.number == 250))
    assert got.numbers() == [n for n in range(599) if n != 250]
    assert got.timeline_ok(599) == 1.0
    fill = [p for _, p in got.pieces if p.kind is not PieceKind.AUDIO]
    assert [(p.kind, p.samples) for p in fill] == [(PieceKind.CONCEALED, FRAME_SAMPLES)]
    assert got.latency_ms(sent, 5200, 12_000) == NETWORK_MS


def test_a_hole_waits_for_its_deadline() -> None:
    """What is behind a lost packet leaves `wait_min_ms` after it came, not before."""
    sent = spoken(10)
    got = deliver(losing(sent, lambda s: s.number == 5))
    released = {number_of(p): ms for ms, p in got.pieces if p.kind is PieceKind.AUDIO}
    assert released[6] == 6 * FRAME_MS + NETWORK_MS + 20
    assert released[8] == 8 * FRAME_MS + NETWORK_MS


def test_reordering_costs_nothing() -> None:
    """A swap of neighbours loses nothing and leaves no latency behind."""
    sent = spoken(400)

    def delay_ms(s: Sent) -> float:
        return NETWORK_MS + (25 if s.number == 100 else 0)

    got = deliver(losing(sent, never, delay_ms))
    assert got.numbers() == list(range(400))
    assert got.buffer.counters.reordered == 1
    assert got.buffer.counters.lost == 0
    assert got.latency_ms(sent, 2200, 8000) == NETWORK_MS


def test_duplicates_cost_nothing() -> None:
    """Second copies, before and after the first one is released, are counted and dropped."""
    sent = spoken(200)
    arrivals = losing(sent, lambda s: s.number == 50)
    got = deliver([a for arrival in arrivals for a in (arrival, (arrival[0] + 3, arrival[1]))])
    assert got.numbers() == [n for n in range(200) if n != 50]
    assert got.buffer.counters.duplicate == 199
    assert got.timeline_ok(200) == 1.0


def test_numbers_wrap() -> None:
    """Both RTP numbers pass their ends in mid-speech, with losses around it."""
    sent = spoken(600, first_sequence=0xFFFF - 200, first_timestamp=2**32 - 300 * FRAME_SAMPLES)
    got = deliver(losing(sent, lambda s: s.number in (199, 201, 299, 300)))
    assert got.timeline_ok(600) == 1.0
    assert got.buffer.counters.lost == 4


def test_the_wait_grows_with_lateness_and_shrinks_after_calm() -> None:
    """Packets 45 ms late are lost once, then waited for; two calm seconds take a step back."""
    sent = spoken(600)

    def delay_ms(s: Sent) -> float:
        return NETWORK_MS + (65 if s.number in (100, 120, 140) else 0)

    got = deliver(losing(sent, never, delay_ms))
    assert got.buffer.counters.late == 1
    assert got.buffer.counters.reordered == 2
    assert [n for n in range(600) if n not in got.numbers()] == [100]
    assert got.buffer.wait_ms == 20
    worst = deliver(losing(sent[:150], never, delay_ms))
    assert 50 < worst.buffer.wait_ms <= 80


def test_what_comes_too_late_to_be_waited_for_does_not_widen() -> None:
    """A packet 300 ms late says nothing about 80 ms."""
    sent = spoken(100)
    got = deliver(losing(sent, never, lambda s: NETWORK_MS + (300 if s.number == 50 else 0)))
    assert got.buffer.counters.late == 1
    assert got.buffer.wait_ms == 20


def test_long_gaps_are_concealed_for_60_ms_and_then_silent() -> None:
    """Seven frames lost: 60 ms drawn out, 80 ms of silence, and the next at its place."""
    sent = spoken(50)
    got = deliver(losing(sent, lambda s: 20 <= s.number < 27))
    fill = [(p.kind, p.samples) for _, p in got.pieces if p.kind is not PieceKind.AUDIO]
    assert fill == [
        (PieceKind.CONCEALED, 60 * RTP_SAMPLES_PER_MS),
        (PieceKind.SILENCE, 80 * RTP_SAMPLES_PER_MS),
    ]
    assert got.samples == 50 * FRAME_SAMPLES


def test_dtx_is_silence_of_its_length() -> None:
    """Numbers go on, timestamps jump: the pause is filled, nothing counts as lost."""
    sent = spoken(60)
    paused = [s for s in sent if not 20 <= s.number < 40]
    renumbered = [
        replace(s, packet=msgspec.structs.replace(s.packet, sequence=i, payload=b"\x78"))
        if s.number == 19
        else replace(s, packet=msgspec.structs.replace(s.packet, sequence=i))
        for i, s in enumerate(paused)
    ]
    got = deliver(losing(renumbered, never))
    assert got.samples == 60 * FRAME_SAMPLES
    assert got.buffer.counters.lost == 0
    assert got.buffer.counters.concealed_samples == 0
    silence = [(ms, p.samples) for ms, p in got.pieces if p.kind is PieceKind.SILENCE]
    assert sum(samples for _, samples in silence) == 20 * FRAME_SAMPLES
    # The announcement starts the silence at once, not when the next packet comes.
    assert silence[0][0] <= 20 * FRAME_MS + NETWORK_MS + 40


def test_nothing_comes_any_more() -> None:
    """After 200 ms the silence is made up for and goes on at the clock's pace, until 12 s."""
    sent = spoken(50)
    got = deliver(losing(sent, never), until_ms=5000)
    last_ms = 49 * FRAME_MS + NETWORK_MS
    silence = [(ms, p) for ms, p in got.pieces if p.kind is PieceKind.SILENCE]
    assert silence[0][0] == last_ms + 200
    assert silence[0][1].samples == 200 * RTP_SAMPLES_PER_MS
    assert got.samples == 50 * FRAME_SAMPLES + (5000 - last_ms) // 20 * FRAME_SAMPLES
    forever = deliver(losing(sent, never), until_ms=60_000)
    assert forever.samples == 50 * FRAME_SAMPLES + 12_000 * RTP_SAMPLES_PER_MS
    assert forever.buffer.due_ns is None


def test_words_that_were_only_delayed_are_kept() -> None:
    """A network that holds everything for 700 ms: silence meanwhile, then all of it."""
    sent = spoken(200)

    def delay_ms(s: Sent) -> float:
        return NETWORK_MS + max(0, 2700 - s.sent_ms) if s.sent_ms >= 2000 else NETWORK_MS

    got = deliver(losing(sent, never, delay_ms))
    assert got.numbers() == list(range(200))
    assert got.buffer.counters.stalls == 1
    assert got.latency_ms(sent, 2700, 4000) == NETWORK_MS


def test_a_paused_track_comes_back() -> None:
    """Ten minutes without a packet, the sender's clock running: 12 s of silence, then speech."""
    sent = spoken(50)
    away_ms = 600_000
    back = [
        Sent(
            s.number,
            s.sent_ms + away_ms,
            msgspec.structs.replace(
                s.packet,
                sequence=s.packet.sequence + 50,
                timestamp=s.packet.timestamp + away_ms * RTP_SAMPLES_PER_MS,
            ),
        )
        for s in sent
    ]
    got = deliver(losing([*sent, *back], never))
    assert got.numbers() == [*range(50), *range(50)]
    assert got.samples == 100 * FRAME_SAMPLES + 12_000 * RTP_SAMPLES_PER_MS


@pytest.mark.parametrize("drift", [-500e-6, 500e-6])
def test_clocks_that_run_apart(drift: float) -> None:
    """Ten minutes at half a thousandth off: nothing is filled in, no latency builds up."""
    sent = [replace(s, sent_ms=s.sent_ms * (1 + drift)) for s in spoken(30_000)]
    got = deliver(losing(sent, never))
    assert got.numbers() == list(range(30_000))
    assert got.samples == 30_000 * FRAME_SAMPLES
    assert got.latency_ms(sent, 595_000, 600_000) == pytest.approx(NETWORK_MS)


def test_another_stream_counts_when_two_packets_agree() -> None:
    """One packet from far off is dropped; a stream that begins anew there is followed."""
    sent = spoken(100)
    stray = Packet(40_000, 7, VOICE, FRAME_SAMPLES)
    arrivals = losing(sent, never)
    got = deliver([*arrivals, (1001.0, stray)])
    assert got.numbers() == list(range(100))
    anew = spoken(50, first_sequence=30_000, first_timestamp=123)
    later = [(ms + 2000, packet) for ms, packet in losing(anew, never)]
    got = deliver([*arrivals, *later])
    # The first of them is what the second is believed for.
    assert got.numbers() == [*range(100), *range(1, 50)]
    assert got.buffer.counters.restarts == 1


def test_timestamps_cannot_order_hours_of_silence() -> None:
    """Random timestamps fill no more than real time, and a second a packet."""
    rng = random.Random(5)
    arrivals = [
        (i * 20.0, Packet(i, rng.getrandbits(32), VOICE, FRAME_SAMPLES)) for i in range(100)
    ]
    got = deliver(arrivals)
    assert len(got.numbers()) == 100
    assert got.samples <= 100 * (1100 * RTP_SAMPLES_PER_MS)


def test_a_hole_never_holds_more_than_its_capacity() -> None:
    """A flood behind a hole is let through before the deadline."""
    buffer = ReceiveBuffer(BufferSettings(capacity=8))
    buffer.push(Packet(0, 0, VOICE, FRAME_SAMPLES), 0)
    buffer.pull(0)
    for i in range(2, 100):
        buffer.push(Packet(i, i * FRAME_SAMPLES, VOICE, FRAME_SAMPLES), 0)
        buffer.pull(0)
        assert buffer.held_packets <= 8


@given(
    st.lists(
        st.tuples(
            st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1), st.integers(0, 3000), st.booleans()
        ),
        max_size=60,
    )
)
@example([(0, 0, 0, True), (0xFFFF, 5, 0, True), (1, 5, 0, False)])
def test_any_order_of_any_numbers(garbage: list[tuple[int, int, int, bool]]) -> None:
    """Whatever comes: no exception, no unbounded hold, no packet twice, no time without bound."""
    now_ns, total = 0, 0
    buffer = ReceiveBuffer()
    seen: list[bytes] = []
    for i, (sequence, timestamp, wait_ms, near) in enumerate(garbage):
        now_ns += wait_ms * NS_PER_MS
        sequence = sequence % 50 if near else sequence
        packet = Packet(sequence, timestamp, bytes([120, 0, i]), FRAME_SAMPLES)
        buffer.push(packet, now_ns)
        for piece in buffer.pull(now_ns):
            total += piece.samples
            if piece.kind is PieceKind.AUDIO:
                seen.append(piece.payload)
        assert buffer.held_packets <= buffer.settings.capacity
        assert buffer.due_ns is None or buffer.due_ns > now_ns
    assert len(seen) == len(set(seen))
    longest_ms = now_ns / NS_PER_MS + len(garbage) * (1000 + FRAME_MS)
    assert total <= longest_ms * RTP_SAMPLES_PER_MS


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["next", "next", "again", "lost", "late", "skip", "far", "pause", "back"]
            ),
            st.sampled_from([0, 5, 20, 20, 20, 90, 400, 3000]),
        ),
        max_size=80,
    ),
    st.sampled_from([0, 0xFFF0, 40_000]),
    st.sampled_from([0, 2**32 - 5 * FRAME_SAMPLES]),
)
def test_taking_is_pushing_and_pulling(
    steps: list[tuple[str, int]], sequence: int, timestamp: int
) -> None:
    """Packets in order, again, lost, late, far off, without sound, behind DTX or a clock that was
    set back: the same pieces, counts and deadlines by `take` as by `push` and `pull`."""
    quick, plain = ReceiveBuffer(), ReceiveBuffer()
    now_ns = 0
    before = Packet(sequence, timestamp, VOICE, FRAME_SAMPLES)
    for i, (what, wait_ms) in enumerate(steps):
        now_ns += wait_ms * NS_PER_MS
        if wait_ms:
            assert quick.pull(now_ns) == plain.pull(now_ns)
        match what:
            case "skip":
                sequence += 1
                quick.skip(sequence & 0xFFFF, now_ns)
                plain.skip(sequence & 0xFFFF, now_ns)
                assert quick.pull(now_ns) == plain.pull(now_ns)
                continue
            case "again":
                packet = before
            case "late":
                packet = msgspec.structs.replace(before, sequence=(sequence - 2) & 0xFFFF)
            case "far":
                packet = msgspec.structs.replace(before, sequence=(sequence + 9_000 + i) & 0xFFFF)
            case _:
                lost = 3 if what == "lost" else 1
                away = {"pause": 48_000, "back": -100_000}.get(what, 0)
                sequence, timestamp = sequence + lost, timestamp + lost * FRAME_SAMPLES + away
                payload = bytes([120, 0, i]) if i % 7 else b"\x78"
                packet = Packet(sequence & 0xFFFF, timestamp % 2**32, payload, FRAME_SAMPLES)
                before = packet
        plain.push(packet, now_ns)
        assert quick.take(packet, now_ns) == plain.pull(now_ns)
        assert quick.counters == plain.counters
        assert (quick.due_ns, quick.wait_ms) == (plain.due_ns, plain.wait_ms)


@given(st.permutations(range(12)), st.sets(st.integers(1, 10)))
def test_a_shuffle_inside_the_deadline_is_put_right(order: list[int], twice: set[int]) -> None:
    """Twelve frames that come within 20 ms of each other come out in order, once each."""
    buffer = ReceiveBuffer()
    sent = spoken(13)
    buffer.push(sent[0].packet, 0)
    pieces = buffer.pull(0)
    for i, n in enumerate(order):
        for _ in range(1 + (n in twice)):
            buffer.push(sent[n + 1].packet, i * NS_PER_MS)
            pieces += buffer.pull(i * NS_PER_MS)
    assert [number_of(p) for p in pieces] == list(range(13))
    assert buffer.counters.lost == 0


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**16 - 1))
def test_unwrapping(near: int, value: int) -> None:
    """The nearest number with those low bits."""
    found = unwrapped(value, near, 16)
    assert found % 2**16 == value
    assert abs(found - near) <= 2**15


def test_a_dropout_within_reason_is_loss_not_another_stream() -> None:
    """900 packets lost at once are counted, and the timeline is filled by at most 12 s."""
    sent = spoken(1000)
    assert MAX_DROPOUT > 900
    got = deliver(losing(sent, lambda s: 50 <= s.number < 950))
    assert got.buffer.counters.lost == 900
    assert got.samples == 100 * FRAME_SAMPLES + 12_000 * RTP_SAMPLES_PER_MS
