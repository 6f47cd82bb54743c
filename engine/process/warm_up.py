"""Runs a loaded model once, so that the first user does not pay for cold pages and caches."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from headstart.engine import api
from headstart.engine.device.choice import on_gpu_of
from headstart.engine.engine import Engine
from headstart.engine.kvcache.storage import KvCache

if TYPE_CHECKING:
    from headstart.engine.models.perception.interface import StreamModel

_SESSION = "warm-up"
_CHUNK_SAMPLES = api.SAMPLE_RATE_HZ // 2
# Larger pictures would cost a 3 billion weight model a minute of one core.
_MAX_SIDE_PX = 224
_POLL_S = 0.5
# Decode steps recorded at the start; recording another size later holds up all sessions once.
RECORDED_STREAMS = 8
RECORDED_TOKENS = 2048


def record_steps(decoder: object, cache: KvCache) -> None:
    """Record the decode steps of a `decoder` on a GPU that sessions begin with."""
    if (on_gpu := on_gpu_of(decoder)) is not None:
        on_gpu.prepare(cache, RECORDED_STREAMS, RECORDED_TOKENS)


def warm_up(
    engine: Engine, model: StreamModel, report: Callable[[str, int, int], None], *, hears: bool
) -> None:
    """Run one short turn: half a second of silence if it `hears`, a picture if it sees, and two
    tokens of an answer. Everything is freed afterwards."""
    engine.receive(api.Open(_SESSION, "Warm up."))
    if hears:
        turn = api.TurnRef(1)
        engine.receive(api.BeginSpeech(_SESSION, turn, "heard", 0))
        engine.receive(api.Audio(_SESSION, turn, 0, bytes(2 * _CHUNK_SAMPLES), 0))
        _run(engine, report)  # prefill the chunk before the speech ends
        engine.receive(api.EndSpeech(_SESSION, turn, _CHUNK_SAMPLES))
    if model.spec.vision is not None:
        side = min(_MAX_SIDE_PX, model.spec.vision.side_px * 8)
        grey = api.Image(side, side, bytes([128]) * (3 * side * side))
        engine.receive(api.Frame(_SESSION, _CHUNK_SAMPLES, grey))
    sampling = api.Sampling(max_tokens=2)
    engine.receive(api.Respond(_SESSION, generation=1, item_id="answer", sampling=sampling))
    _run(engine, report)
    engine.receive(api.Close(_SESSION))
    _run(engine, report)


def _run(engine: Engine, report: Callable[[str, int, int], None]) -> None:
    report("warm-up", 0, 0)
    while engine.step() or engine.is_encoding or engine.is_recognising:
        report("warm-up", 0, 0)
        if engine.is_encoding or engine.is_recognising:  # beside the steps
            select.select(engine.wake_fds, [], [], _POLL_S)
