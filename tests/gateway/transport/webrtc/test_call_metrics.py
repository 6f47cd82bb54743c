from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from headstart.gateway.transport.webrtc.call_metrics import CallEnd, CallMetrics
from headstart.gateway.transport.webrtc.receive_buffer import BufferCounters


def test_what_a_track_counts_adds_up() -> None:
    """Counters grow by differences, and sound is told in seconds."""
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    first = BufferCounters(received=10, lost=1, audio_samples=9600, concealed_samples=960, dtx=1)
    metrics.track(BufferCounters(), first)
    metrics.track(first, replace(first, received=15, silence_samples=48_000, stalls=2))
    metrics.calls.labels(CallEnd.VANISHED).inc()
    text = generate_latest(registry).decode()
    for line in (
        'headstart_rtp_audio_packets_total{fate="received"} 15.0',
        'headstart_rtp_audio_packets_total{fate="lost"} 1.0',
        'headstart_rtp_audio_seconds_total{kind="audio"} 0.2',
        'headstart_rtp_audio_seconds_total{kind="concealed"} 0.02',
        'headstart_rtp_audio_seconds_total{kind="silence"} 1.0',
        'headstart_rtp_audio_pauses_total{kind="stall"} 2.0',
        'headstart_calls_total{end="vanished"} 1.0',
    ):
        assert line in text


def test_sound_that_nobody_heard_is_counted_in_seconds() -> None:
    """Half a second of s16 mono at 24 kHz; and packets beyond a call's share are counted."""
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    metrics.dropped(24_000)
    metrics.over_share.inc()
    assert registry.get_sample_value("headstart_rtp_audio_dropped_seconds_total") == 0.5
    assert registry.get_sample_value("headstart_rtp_over_share_total") == 1


def test_a_path_of_unknown_round_trip_has_only_jitter() -> None:
    """What nobody could measure is not observed as 0."""
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    metrics.path(3.0, None)
    metrics.path(5.0, 12.0)
    assert registry.get_sample_value("headstart_rtp_jitter_seconds_sum") == 0.008
    assert registry.get_sample_value("headstart_rtp_round_trip_seconds_count") == 1


def test_totals_for_who_watches() -> None:
    """Packets that were played, and sound that was filled in."""
    metrics = CallMetrics(CollectorRegistry())
    assert metrics.totals()["packets"]["played"] == 0
    counted = BufferCounters(received=100, lost=4, late=3, duplicate=2, concealed_samples=960)
    metrics.track(BufferCounters(), counted)
    assert metrics.totals() == {
        "packets": {"played": 95, "late": 3, "lost": 4, "duplicate": 2},
        "concealed_ms": 20,
        "silence_ms": 0,
    }
