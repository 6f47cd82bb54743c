"""Messages through a pipe that cuts them anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.tts.messages import (
    ClauseDone,
    Speak,
    Stop,
    SynthesisedAudio,
    Unpacker,
    VoiceCommand,
    VoiceEvent,
    pack,
)


@given(st.integers(1, 40))
def test_any_cut_gives_the_same_messages(size_bytes: int) -> None:
    """Byte by byte or all at once."""
    sent = [
        SynthesisedAudio("s", 1, 0, b"\1\2" * 9),
        ClauseDone("s", 1, 0),
        ClauseDone("s", 2, 5, "no"),
    ]
    stream = b"".join(pack(message) for message in sent)
    unpacker = Unpacker(VoiceEvent)
    got = []
    for at in range(0, len(stream), size_bytes):
        got += unpacker.feed(stream[at : at + size_bytes])
    assert got == sent


def test_commands_come_back_as_they_were() -> None:
    """Both of them, with their defaults."""
    sent = [Speak("s", 1, 0, "Hi, ", 1.5), Stop("s"), Stop("s", 3)]
    assert Unpacker(VoiceCommand).feed(b"".join(pack(message) for message in sent)) == sent


def test_a_length_that_cannot_be_is_an_error() -> None:
    """A stream out of step is noticed, not buffered without end."""
    with pytest.raises(ValueError, match="bytes"):
        Unpacker(VoiceEvent).feed(b"\xff" * 8)
