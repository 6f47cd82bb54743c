from headstart.gateway.transport.webrtc.rtp_clock import RtpClock


def test_one_codec_keeps_its_own_time() -> None:
    """Opus's timestamps are the line, G.711's are six times as dense, over the wrap of either."""
    opus, telephone = RtpClock(), RtpClock()
    for i in range(400):
        timestamp = (2**32 - 100_000 + i * 960) % 2**32
        assert opus.place(i, timestamp, 960, 48_000) == timestamp
    start = telephone.place(65_530, 2**32 - 800, 960, 8_000)
    for i in range(1, 400):
        number, timestamp = (65_530 + i) % 2**16, (2**32 - 800 + i * 160) % 2**32
        at = telephone.place(number, timestamp, 960, 8_000)
        assert (at - start) % 2**32 == i * 960


def test_a_change_of_rate_continues_the_line() -> None:
    """The first packet of another rate lies behind the last one, by their numbers: a packet lost
    between leaves its room. Time goes on from there in the new rate, and back again."""
    clock = RtpClock()
    assert [clock.place(i, 5_000 + i * 960, 960, 48_000) for i in (0, 1, 2)] == [
        5_000,
        5_960,
        6_920,
    ]
    assert clock.place(4, 77, 960, 8_000) == 6_920 + 2 * 960
    assert clock.place(5, 77 + 160, 960, 8_000) == 6_920 + 3 * 960
    assert clock.place(6, 999_999, 960, 48_000) == 6_920 + 4 * 960
    assert clock.place(7, 999_999 + 960, 960, 48_000) == 6_920 + 5 * 960


def test_a_late_packet_of_before_the_change_changes_nothing() -> None:
    """It is put where its number says, and the newer rate stays in force."""
    clock = RtpClock()
    clock.place(0, 0, 960, 48_000)
    clock.place(1, 960, 960, 48_000)
    assert clock.place(3, 50, 960, 8_000) == 3 * 960
    assert clock.place(2, 1920, 960, 48_000) == 2 * 960
    assert clock.place(4, 210, 960, 8_000) == 4 * 960


def test_packets_keep_the_distance_they_had() -> None:
    """What counts at a change is how far packets were apart, not what garbage claims to last, nor
    a pause between two of them."""
    clock = RtpClock()
    clock.place(0, 0, 960, 48_000)
    clock.place(1, 960, 5_760, 48_000)
    clock.place(2, 1_920 + 480_000, 960, 48_000)
    assert clock.place(3, 0, 960, 8_000) == 1_920 + 480_000 + 960
