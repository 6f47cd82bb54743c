"""The listening path's settings, events and errors say what they mean."""

from __future__ import annotations

import pytest

from headstart.engine.api import TurnRef
from headstart.gateway.audio.speech_events import (
    CommitTooShortError,
    OddAudioError,
    SegmenterError,
    SegmenterSettings,
    SpeechChunk,
    UtteranceTooLongError,
)


@pytest.mark.parametrize("name", ["chunk_ms", "watchdog_ms", "commit_min_ms", "max_utterance_s"])
def test_settings_are_checked(name: str) -> None:
    """Zero is no length."""
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        SegmenterSettings(**{name: 0})


def test_a_chunk_knows_its_end() -> None:
    """Two bytes are one sample."""
    assert SpeechChunk(TurnRef(1), 100, bytes(640), 0).end_sample == 420


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OddAudioError(3), "s16 audio needs an even number of bytes, got 3"),
        (
            CommitTooShortError(100, 12.5),
            "expected at least 100 ms of audio to commit, got 12.50 ms",
        ),
        (
            UtteranceTooLongError(300, 300.5),
            "an utterance may last 300 s, this packet would make it 300.50 s",
        ),
    ],
)
def test_errors_say_what_was_expected_and_what_came(error: SegmenterError, sentence: str) -> None:
    """One sentence each, and one base to catch."""
    assert str(error) == sentence
