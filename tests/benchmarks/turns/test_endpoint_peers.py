"""Peers' rules for the end of a turn."""

from __future__ import annotations

from headstart.benchmarks.turns.endpoint_peers import livekit, pipecat, pipecat_timeout
from headstart.benchmarks.turns.turn_outcomes import HeardPause
from headstart.gateway.audio.clock import ms_to_engine_samples
from headstart.gateway.audio.endpointing import EndpointPolicy, EndpointVerdict


def end_ms(policy: EndpointPolicy, smart_turn: float) -> int:
    """The silence at which a turn ends, where the detector's word is known at 240 ms."""
    for silence_ms in range(20, 10_000, 20):
        known = smart_turn if silence_ms >= 240 else None
        pause = HeardPause(ms_to_engine_samples(silence_ms), 16_000, smart_turn=known)
        if policy.judge(pause) is EndpointVerdict.END:
            return silence_ms
    raise AssertionError("it never ends")


def test_pipecat_waits_three_seconds_for_what_sounds_unfinished() -> None:
    """Behind its voice detector's stop."""
    assert end_ms(pipecat(), 0.9) == 240
    assert end_ms(pipecat(), 0.2) == 3200
    assert end_ms(pipecat_timeout(), 0.2) == 800


def test_livekit_waits_between_its_two_delays() -> None:
    """The same with other lengths."""
    assert end_ms(livekit(), 0.9) == 500
    assert end_ms(livekit(), 0.2) == 3000
    assert end_ms(livekit(300, 2500), 0.9) == 300
