"""`headstart bench start`: what it makes of starts, and which process is which."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.benchmarks.server.start import Start, process_kind, summary

MEMORY = {"engine": {"rss": 900.0, "pss": 700.0, "uss": 400.0}}


def start(ready_s: float, turns_ms: list[float], **more: Any) -> Start:
    cpu_s = {"engine": ready_s}
    return Start(ready_s, {"listening": 1.0}, cpu_s, MEMORY, turns_ms, MEMORY, **more)


def test_the_median_start_is_reported_ratio_first() -> None:
    """Packed anew ÷ packed; the first turn beside the later ones."""
    warm = [start(s, [300.0, 200.0, 100.0]) for s in (3.0, 2.0)]
    warm.append(start(2.5, [330.0, 110.0, 110.0], session_kb={"engine": 5.0}))
    anew = [start(s, []) for s in (5.0, 9.0, 6.0)]
    found = summary("small", warm, anew, None)
    assert next(iter(found)) == "ratio"
    assert found["ratio"] == 2.4
    assert found["ready_s_p50"] == 2.5
    assert found["ready_s_all"] == [3.0, 2.0, 2.5]
    assert found["first_turn_ms_p50"] == 300.0
    assert found["later_turn_ms_p50"] == 110.0
    assert found["first_turn_ratio"] == 2.73
    assert found["engine_session_kb"] == 5.0
    assert found["stages_s"] == {"listening": 1.0}
    assert found["memory_mb"]["engine"]["pss"] == 700.0
    assert found["cold_ready_s"] is None
    assert summary("small", warm, anew, start(7.0, []))["cold_ready_s"] == 7.0


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["python", "-P", "-m", "headstart.engine", "--model", "small"], "engine"),
        (["python", "-P", "-m", "headstart", "serve"], "gateway"),
        (["python", "-P", "-m", "headstart.gateway.tts.worker", "joe"], "voice"),
        (["python", "-P", "-m", "headstart.gateway.video.decode_worker", "768"], "decoders"),
        (["git", "commit", "-m"], "other"),
        ([], "other"),
    ],
)
def test_processes_are_told_apart_by_their_module(argv: list[str], kind: str) -> None:
    """The kind of each command line that a server has, and of two that it has not."""
    assert process_kind(argv) == kind
