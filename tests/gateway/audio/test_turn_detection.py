"""Which policy a session's turn detection means."""

from __future__ import annotations

from typing import Literal

import pytest

from headstart.gateway.audio.endpointing import (
    EAGERNESS,
    AdaptiveSilence,
    EagerSilence,
    FixedSilence,
    Pause,
    PauseStatistics,
    SemanticSilence,
)
from headstart.gateway.audio.turn_detection import detection_of
from headstart.gateway.protocol.extensions import Endpointing
from headstart.gateway.protocol.session_config import SemanticVadConfig, ServerVadConfig


def test_detection_follows_the_protocols_settings() -> None:
    """Silence, padding and threshold are taken over; the hush never comes after the end."""
    assert detection_of(None, 200) is None
    vad = detection_of(ServerVadConfig(threshold=0.7, silence_duration_ms=120), 200)
    assert vad is not None
    assert vad.threshold == 0.7
    assert vad.endpoint == FixedSilence(120, 120)


@pytest.mark.parametrize(
    ("endpointing", "kind"),
    [
        ("fixed", FixedSilence),
        ("adaptive", AdaptiveSilence),
        ("semantic", SemanticSilence),
        ("eager", EagerSilence),
    ],
)
def test_server_vads_silence_may_be_read_four_ways(
    endpointing: Endpointing, kind: type[object]
) -> None:
    """The setting chooses the policy that makes use of it."""
    vad = detection_of(
        ServerVadConfig(silence_duration_ms=600), 200, PauseStatistics(), endpointing
    )
    assert vad is not None
    assert isinstance(vad.endpoint, kind)


@pytest.mark.parametrize(
    ("eagerness", "kind"),
    [
        ("high", EagerSilence),
        ("auto", EagerSilence),
        ("medium", SemanticSilence),
        ("low", SemanticSilence),
    ],
)
def test_semantic_vads_eagerness_chooses_the_policy(
    eagerness: Literal["low", "medium", "high", "auto"], kind: type[object]
) -> None:
    """Eager ends are for whoever asked for eagerness, or left it to us."""
    vad = detection_of(SemanticVadConfig(eagerness=eagerness), 200)
    assert vad is not None
    assert isinstance(vad.endpoint, kind)
    assert vad.endpoint.longest_silence_ms == EAGERNESS[eagerness].most_ms


def test_semantic_vad_keeps_the_servers_detector() -> None:
    """It has no threshold and no padding of its own: those of the server's settings apply."""
    ours = ServerVadConfig(threshold=0.7, prefix_padding_ms=120)
    vad = detection_of(SemanticVadConfig(), 200, ours=ours)
    assert vad is not None
    assert (vad.threshold, vad.prefix_padding_ms) == (0.7, 120)


def test_a_speakers_pace_survives_a_change_of_settings() -> None:
    """What one policy has learnt, the next one knows."""
    pace = PauseStatistics()
    for _ in range(20):
        pace.learn(1000)
    changed = detection_of(SemanticVadConfig(eagerness="low"), 200, pace)
    fresh = detection_of(SemanticVadConfig(eagerness="low"), 200)
    assert changed is not None
    assert fresh is not None
    assert isinstance(changed.endpoint, SemanticSilence)
    assert isinstance(fresh.endpoint, SemanticSilence)
    assert changed.endpoint.silence_ms(0.9) > fresh.endpoint.silence_ms(0.9)


def test_answers_in_text_dare_more() -> None:
    """Nobody hears one that is taken back, so a statement ends as early as a question."""
    spoken = detection_of(SemanticVadConfig(), 200)
    read = detection_of(SemanticVadConfig(), 200, audible=False)
    assert spoken is not None
    assert read is not None
    assert isinstance(spoken.endpoint, EagerSilence)
    assert isinstance(read.endpoint, EagerSilence)
    likely, broken = Pause(0, 0, 0.7), Pause(0, 0, 1e-4)
    assert read.endpoint.silence_ms(likely) < spoken.endpoint.silence_ms(likely)
    assert read.endpoint.silence_ms(broken) == spoken.endpoint.silence_ms(broken)
