"""headstart.engine.asr.persist: nobody is cut off because the decoder believes they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from headstart.engine.asr import persist
from headstart.engine.asr.decoding import Decoded, Ending, Job, Memory, Task
from headstart.engine.asr.mel import FRAMES_PER_SECOND
from headstart.engine.asr.whisper.caches import CrossCache, TextCache
from headstart.engine.asr.whisper.pieces import Pieces, drain
from headstart.engine.asr.whisper.settings import WhisperSettings

SETTINGS = WhisperSettings(
    mels=4,
    width=8,
    heads=2,
    ffn=8,
    encoder_layers=1,
    decoder_layers=1,
    vocabulary=32,
    audio_positions=16,
    text_positions=16,
)
JOB = Job(
    CrossCache(torch.empty(0), torch.empty(0)),
    Task(opening=(1,), forced=(2, 3), draft=(9,), limit=20, positions=400),
    Memory(TextCache(SETTINGS)),
)
END_AT_ONCE = Decoded((), (), (0.4, 0.9), -1.0, 0.0, Ending.END, 1)
MORE = Decoded((4, 5), (-0.1, -0.3), (0.4, 0.9, 2.0, 4.0), -0.2, 0.0, Ending.END, 3)


@dataclass
class Scripted:
    """Says `first`, and `again` when the end may not come first."""

    first: Decoded
    again: Decoded
    asked: list[Task] = field(default_factory=list)

    def decode_in_pieces(self, jobs: Sequence[Job]) -> Pieces[list[Decoded]]:
        self.asked += [job.task for job in jobs]
        yield
        return [self.first if job.task.end_first else self.again for job in jobs]


def speech(*parts: tuple[float, float]) -> Tensor:
    """Raw log-mel of stretches (seconds, loudness)."""
    return torch.cat([torch.full((round(s * FRAMES_PER_SECOND), 4), loud) for s, loud in parts])


# A word's length of sound, a second's pause, and four seconds more of it.
GOES_ON = speech((1.5, 0.0), (1.0, -4.0), (4.0, 0.0))


def test_speech_behind_the_last_word_is_asked_for() -> None:
    """With seconds of speech behind the last word the decoder is asked again, behind all it said,
    and what it is sure of is added."""
    decoder = Scripted(END_AT_ONCE, MORE)
    decoded = drain(persist.decode_in_pieces(decoder, [JOB], [GOES_ON]))[0]
    assert decoded.tokens == (4, 5)
    assert decoded.places_s == MORE.places_s
    assert decoded.ending is Ending.END
    assert decoded.passes == END_AT_ONCE.passes + MORE.passes
    again = replace(JOB.task, draft=(), end_first=False)
    assert decoder.asked == [JOB.task, again]


def test_words_said_before_the_early_end_are_kept() -> None:
    """What was decoded before the end is forced the second time and stands in the result."""
    first = Decoded((7,), (-0.5,), (0.4, 0.9, 1.1), -1.0, 0.25, Ending.END, 2)
    decoder = Scripted(first, MORE)
    decoded = drain(persist.decode_in_pieces(decoder, [JOB], [GOES_ON]))[0]
    assert decoded.tokens == (7, 4, 5)
    assert decoded.logprobs == (-0.5, -0.1, -0.3)
    assert decoded.no_speech == 0.25
    assert decoder.asked[1].forced == (2, 3, 7)


@pytest.mark.parametrize(
    "again",
    [
        replace(MORE, logprobs=(-2.0, -2.0)),
        replace(MORE, ending=Ending.LOOP),
        replace(MORE, tokens=(), logprobs=()),
    ],
    ids=["unsure", "loop", "nothing"],
)
def test_what_it_is_not_sure_of_does_not_count(again: Decoded) -> None:
    """Guesses on being pressed are dropped: the end it was."""
    decoder = Scripted(END_AT_ONCE, again)
    assert drain(persist.decode_in_pieces(decoder, [JOB], [GOES_ON])) == [END_AT_ONCE]


@pytest.mark.parametrize(
    ("frames", "first"),
    [
        (speech((1.5, 0.0), (5.0, -4.0)), END_AT_ONCE),
        (speech((1.5, 0.0), (2.0, -4.0), (0.6, 0.0), (2.0, -4.0)), END_AT_ONCE),
        (speech((6.0, -3.0)), END_AT_ONCE),
        (torch.empty(0, 4), END_AT_ONCE),
        (GOES_ON, replace(END_AT_ONCE, places_s=(0.4, 5.0))),
        (GOES_ON, replace(END_AT_ONCE, places_s=())),
        (GOES_ON, replace(END_AT_ONCE, ending=Ending.LOOP)),
    ],
    ids=["silence", "a cough", "all alike", "no sound", "heard to the end", "no places", "a loop"],
)
def test_an_end_is_an_end_elsewhere(frames: Tensor, first: Decoded) -> None:
    """Silence or one short noise behind the last word, a sound without contrast, words up to the
    end, a model that does not say where it listens: nothing is asked twice."""
    decoder = Scripted(first, MORE)
    assert drain(persist.decode_in_pieces(decoder, [JOB], [frames])) == [first]
    assert len(decoder.asked) == 1
