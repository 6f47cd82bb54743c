"""A batch of audio and its traces."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.session.utterance import HEADROOM_SHARE, AudioBatch, Utterance

CHUNK_NS = 500_000_000


def portion(*counts: int) -> AudioBatch:
    """Chunks of those lengths in half seconds, each received when the one before was."""
    utterance = Utterance(api.TurnRef(1), "u1", state=None, start_sample=0)
    pcms = [np.full(8_000 * n, n, "<i2").tobytes() for n in counts]
    chunks = tuple(api.Audio("s", api.TurnRef(1), 0, pcm, received_ns=0) for pcm in pcms)
    return AudioBatch(utterance, chunks)


def test_the_sound_of_all_chunks_in_order() -> None:
    """fp32, end to end."""
    sound = portion(1, 2).pcm()
    assert len(sound) == portion(1, 2).samples == 24_000
    assert (sound[:8_000] * 32768 == 1).all()
    assert (sound[8_000:] * 32768 == 2).all()


def test_headroom_ends_before_the_deadline() -> None:
    """Words known with a quarter of the chunk's time left may be prefilled ahead, later not."""
    last_ns = round(CHUNK_NS * (1 - HEADROOM_SHARE))
    assert portion(1).has_headroom(last_ns)
    assert not portion(1).has_headroom(last_ns + 1)


def test_each_chunk_has_a_trace() -> None:
    """One trace per chunk, with work by length and the session's share; tokens count once."""
    traces = portion(1, 3).traces({"mel": 4.0, "encode": 8.0}, 0.5, 10, 2)
    assert [trace.heard_ms["encode"] for trace in traces] == pytest.approx([1.0, 3.0])
    reports = [trace.report("s", 15, 2 * CHUNK_NS) for trace in traces]
    assert [report.prefilled_tokens for report in reports] == [0, 5]
    assert [report.rolled_back_tokens for report in reports] == [0, 2]
    assert [report.samples for report in reports] == [8_000, 24_000]
