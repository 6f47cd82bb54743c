"""headstart.benchmarks.hearing.segmented: clips through the gateway's segmenter."""

from __future__ import annotations

import numpy as np

from headstart.benchmarks.hearing.segmented import Chunk, Pause, segmented_clip
from headstart.benchmarks.inputs.recordings import CLIPS, load_f32


def test_a_question_is_one_turn_with_all_its_sound() -> None:
    """Chunks of the asked length, a hush, the end; together they are what was spoken."""
    sound = load_f32(CLIPS / "capital.wav", 16_000)
    steps = list(segmented_clip(sound, 500))
    chunks = [step for step in steps if isinstance(step, Chunk)]
    assert steps[-2:] == [Pause.HUSH, Pause.END]
    assert steps.count(Pause.END) == 1
    assert {len(chunk.sound) for chunk in chunks[:-1]} == {8000}
    assert sum(len(chunk.sound) for chunk in chunks) > 0.8 * len(sound)
    assert [c.end_sample for c in chunks] == sorted(c.end_sample for c in chunks)


def test_silence_is_no_turn() -> None:
    """Nothing is handed on of a quiet room."""
    assert list(segmented_clip(np.zeros(16_000, np.float32), 500)) == []
