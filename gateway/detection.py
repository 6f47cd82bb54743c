"""The protocol's `turn_detection` as the listener knows it: which policy ends a turn."""

from __future__ import annotations

from typing import assert_never

from gateway.endpoint import FixedSilence, Pace, semantic
from gateway.listening import Detection
from gateway.protocol.session_config import SemanticVadConfig, ServerVadConfig, TurnDetection


def detection_of(
    turns: TurnDetection | None, hush_ms: int, pace: Pace | None = None
) -> Detection | None:
    """None is push-to-talk. `hush_ms`: the silence that starts speculation; `pace`: what is known
    of the speaker's pauses."""
    match turns:
        case None:
            return None
        case ServerVadConfig():
            silence_ms = turns.silence_duration_ms
            return Detection(
                threshold=turns.threshold,
                prefix_padding_ms=turns.prefix_padding_ms,
                endpoint=FixedSilence(silence_ms, min(hush_ms, silence_ms)),
            )
        case SemanticVadConfig():
            return Detection(endpoint=semantic(turns.eagerness, hush_ms, pace))
        case _:
            assert_never(turns)
