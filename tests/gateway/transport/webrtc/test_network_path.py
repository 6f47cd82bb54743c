from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.transport.webrtc.rtp_clock import WINDOW_NS, Lowest, NetworkPath


def ms(value: float) -> int:
    return round(value * NS_PER_MS)


def delays_ms(path: NetworkPath, late_ms: list[float], begin: int = 0) -> list[float | None]:
    """Of packets that come every 20 ms, each that much later than it should."""
    found: list[float | None] = []
    for i, late in enumerate(late_ms, begin):
        delay_ns = path.delay_ns(12_345 + i * 960, ms(1_000 + i * 20 + late))
        found.append(None if delay_ns is None else delay_ns / NS_PER_MS)
    return found


def test_nothing_is_known_without_a_round_trip() -> None:
    """How packets differ says nothing of what they have in common."""
    assert delays_ms(NetworkPath(), [0, 5, 0]) == [None, None, None]


def test_half_a_round_trip_and_what_it_took_beyond_the_quickest() -> None:
    """The quickest answer counts, not the last one; a packet's own lateness is added."""
    path = NetworkPath()
    path.answered(ms(40), 0)
    path.answered(ms(300), ms(10))
    assert delays_ms(path, [0, 0, 35, 5, 0]) == [20, 20, 55, 25, 20]


def test_an_answer_grows_old() -> None:
    """After two windows without one nothing is known any more; a new one is believed at once."""
    path = NetworkPath()
    path.answered(ms(40), 0)
    assert path.delay_ns(0, WINDOW_NS + 1) == ms(20)
    assert path.delay_ns(0, 3 * WINDOW_NS) is None
    path.answered(ms(90), 3 * WINDOW_NS)
    assert path.delay_ns(0, 3 * WINDOW_NS) == ms(45)


def test_clocks_that_drift_apart_cost_little() -> None:
    """A peer's clock that is 100 ppm slow: after an hour the estimate is off by what a minute's
    drift comes to, not by an hour's 360 ms."""
    path = NetworkPath()
    last = 0
    for s in range(3_600):
        now_ns = s * 1_000 * NS_PER_MS
        path.answered(ms(40), now_ns)
        last = path.delay_ns(round(s * 48_000 * (1 - 1e-4)), now_ns) or 0
    assert ms(20) <= last <= ms(27)


def test_another_count_begins_anew() -> None:
    """Timestamps that jump by an hour, in either direction, are another stream's."""
    for jump_s in (3_600, -3_600):
        path = NetworkPath()
        path.answered(ms(40), 0)
        assert path.delay_ns(0, ms(1_000)) == ms(20)
        assert path.delay_ns(jump_s * 48_000, ms(1_020)) == ms(20)
        assert path.delay_ns(jump_s * 48_000 + 960, ms(1_045)) == ms(25)


def test_the_lowest_of_two_windows() -> None:
    """A low value is kept for at least one window and at most two."""
    lowest = Lowest()
    assert lowest.take(5, 0) == 5
    assert lowest.take(9, WINDOW_NS) == 5
    assert lowest.take(8, 2 * WINDOW_NS) == 8
    assert lowest.get(5 * WINDOW_NS) is None


def test_jitter_is_what_packets_differ_by() -> None:
    """RFC 3550: none while they come evenly, and it settles near what each differs from the next;
    another count of the peer's is no jitter of 13 hours."""
    path = NetworkPath()
    delays_ms(path, [0] * 50)
    assert path.jitter_ns == 0
    delays_ms(path, [0, 8] * 100, begin=50)
    assert 7 < path.jitter_ns / NS_PER_MS < 8.1
    path.delay_ns(2_000_000_000, ms(10_000))
    assert path.jitter_ns / NS_PER_MS < 8.1


def test_the_round_trip_is_known_while_it_is_fresh() -> None:
    """As for delays: the quickest lately, and none when none was answered."""
    path = NetworkPath()
    assert path.round_trip_ns(0) is None
    path.answered(ms(40), 0)
    assert path.round_trip_ns(ms(5)) == ms(40)
    assert path.round_trip_ns(3 * WINDOW_NS) is None
