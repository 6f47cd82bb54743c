"""Converts the protocol's `turn_detection` to segmenter settings."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from headstart.gateway.audio.endpointing import (
    EAGER,
    EAGERNESS,
    UNHEARD,
    AdaptiveSilence,
    EagerSettings,
    EagerSilence,
    EndpointPolicy,
    FixedSilence,
    PauseStatistics,
    SemanticSilence,
    eager,
    semantic,
)
from headstart.gateway.audio.segmenter import Detection
from headstart.gateway.protocol.extensions import Endpointing
from headstart.gateway.protocol.session_config import (
    SemanticVadConfig,
    ServerVadConfig,
    TurnDetection,
)


def detection_of(
    turns: TurnDetection | None,
    hush_ms: int,
    pace: PauseStatistics | None = None,
    endpointing: Endpointing = "fixed",
    *,
    ours: ServerVadConfig | None = None,
    revocable_ms: int = EagerSettings.revocable_ms,
    audible: bool = True,
) -> Detection | None:
    """None is push-to-talk. `hush_ms`: the silence that starts speculation; `pace`: statistics of
    the speaker's pauses; `endpointing`: the policy for `server_vad`; `ours`: the server's
    own threshold and padding, which `semantic_vad` cannot set; `revocable_ms`: how long an end can
    be taken back; with 0, `eager` is `semantic`; `audible`: whether answers are spoken."""
    pace = pace or PauseStatistics()
    settings = replace(EagerSettings() if audible else UNHEARD, revocable_ms=revocable_ms)
    match turns:
        case None:
            return None
        case ServerVadConfig():
            hush_ms = min(hush_ms, turns.silence_duration_ms)
            return Detection(
                threshold=turns.threshold,
                prefix_padding_ms=turns.prefix_padding_ms,
                endpoint=_policy(endpointing, turns.silence_duration_ms, hush_ms, pace, settings),
            )
        case SemanticVadConfig():
            ours = ours or ServerVadConfig()
            return Detection(
                threshold=ours.threshold,
                prefix_padding_ms=ours.prefix_padding_ms,
                endpoint=eager(turns.eagerness, pace, settings)
                if revocable_ms and turns.eagerness in EAGER
                else semantic(turns.eagerness, hush_ms, pace),
            )
        case _:
            assert_never(turns)


def _policy(
    endpointing: Endpointing,
    silence_ms: int,
    hush_ms: int,
    pace: PauseStatistics,
    settings: EagerSettings,
) -> EndpointPolicy:
    match endpointing:
        case "fixed":
            return FixedSilence(silence_ms, hush_ms)
        case "adaptive":
            return AdaptiveSilence(pace, silence_ms, hush_ms)
        case "eager" if settings.revocable_ms:
            return EagerSilence(pace, silence_ms, EAGERNESS["auto"].most_ms, settings)
        case "semantic" | "eager":
            adaptive = AdaptiveSilence(pace, silence_ms, hush_ms)
            return SemanticSilence(adaptive, EAGERNESS["auto"].most_ms)
        case _:
            assert_never(endpointing)
