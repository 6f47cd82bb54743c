"""`talk --speak`: spoken answers, timed on to their first sound, by a server with a real voice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart.talk.client import TalkOptions, talk
from tests.headstart.talk.test_client import Recorder

ANSWER = "This is an answer that comes word by word."


def stages_sum_ms(budget: dict[str, Any]) -> float:
    total_ms: float = sum(ms for ms in budget["stages_ms"].values() if ms is not None)
    return total_ms


async def test_a_call_counts_until_it_is_heard(speaking_server_url: str, spoken: Path) -> None:
    """A real peer: the server's own track says when the first frame was sent. All stages sum to
    that, to a millisecond; the next file waits until the answer's sound is over."""
    recorder = Recorder()
    options = TalkOptions(webrtc=True, speak=True)
    dialog = await talk([spoken, spoken], speaking_server_url, options, recorder)
    for result in dialog.to_wire()["turns"]:
        budget = result["budget"]
        assert result["answer"] == ANSWER
        assert budget["stages_ms"]["voice"] > 0
        assert budget["stages_ms"]["playout"] is not None
        assert stages_sum_ms(budget) == pytest.approx(budget["heard_ms"], abs=1.0)
        assert budget["total_ms"] <= budget["first_sound_ms"] <= budget["heard_ms"]
        voice_ms = result["facts"]["voice"]["total_ms"]
        assert budget["first_sound_ms"] == pytest.approx(voice_ms, abs=0.002)  # rounded apart
    assert recorder.kinds.count("output_audio_buffer.stopped") >= 2
    assert "response.output_audio.delta" not in recorder.kinds


async def test_over_a_socket_nobody_says_when_it_was_heard(
    speaking_server_url: str, spoken: Path
) -> None:
    """The first sound sent is the last instant that is known; playout is null, not 0."""
    dialog = await talk([spoken, spoken], speaking_server_url, TalkOptions(speak=True))
    for result in dialog.to_wire()["turns"]:
        budget = result["budget"]
        assert (result["answer"], result["answers"]) == (ANSWER, 1)
        assert (budget["stages_ms"]["playout"], budget["heard_ms"]) == (None, None)
        assert stages_sum_ms(budget) == pytest.approx(budget["first_sound_ms"], abs=1.0)


async def test_a_server_without_a_voice_answers_in_text(fake_server_url: str, spoken: Path) -> None:
    """It is asked to speak and cannot: the answer is there, and has no sound to time."""
    dialog = await talk([spoken], fake_server_url, TalkOptions(speak=True))
    result = dialog.to_wire()
    budget = result["budget"]
    assert result["answer"] == ANSWER
    assert (budget["stages_ms"]["voice"], budget["stages_ms"]["playout"]) == (None, None)
    assert (budget["first_sound_ms"], budget["heard_ms"]) == (None, None)
    assert stages_sum_ms(budget) == pytest.approx(budget["total_ms"], abs=1.0)
