"""Parts of a running response on the wire."""

from __future__ import annotations

from openai.types.realtime import RealtimeResponseCreateParams

from engine import api
from gateway.running import kv_to_wire, modality_of


def test_the_cache_is_told_whole() -> None:
    """Every number that the engine gives has its key."""
    kv = api.KvStats(tokens=15, blocks=1, bytes=1500, bytes_per_token=100, adopted=3)
    wire = kv_to_wire(kv)
    assert wire["tokens"] == 15
    assert wire["bytes"] == 1500
    assert wire["adopted"] == 3
    assert {"blocks", "bytes_per_token", "by_modality", "evicted", "window"} <= set(wire)


def test_a_response_may_ask_for_a_modality_or_leave_it() -> None:
    """Nothing asked is the session's business."""
    assert modality_of(None) is None
    assert modality_of(RealtimeResponseCreateParams()) is None
    assert modality_of(RealtimeResponseCreateParams(output_modalities=["text"])) == "text"
