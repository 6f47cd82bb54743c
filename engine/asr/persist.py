"""Decoding that does not stop while somebody still speaks.

Now and then Whisper calls it the end behind a word after which speech goes on: it then stays deaf
to all that follows, chunk after chunk, for what is heard later changes little of that. Where much
that sounds like speech lies behind the last word, the decoder is asked once more, this time without
the end as an answer to begin with. What it says then counts if it is sure of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from headstart.engine.asr.decoding import Decoded, Ending, Job
from headstart.engine.asr.mel import FRAMES_PER_SECOND, loudness
from headstart.engine.asr.whisper.pieces import Pieces

# Speech behind the onset of the last word that a word's own length does not account for.
WORD_S = 0.6
UNHEARD_S = 1.0
# What is said on being asked again is believed from here on; on noise it is far below.
SURE_LOGPROB = -0.7
# Log10 of power, mean over the bands, between the loud and the quiet of a window that has both.
_LEAST_CONTRAST = 0.5


class Decoder(Protocol):
    """What is asked: `headstart.engine.asr.decoding.GreedyDecoder`."""

    def decode_in_pieces(self, jobs: Sequence[Job]) -> Pieces[list[Decoded]]: ...


def decode_in_pieces(
    greedy: Decoder, jobs: Sequence[Job], frames: Sequence[Tensor]
) -> Pieces[list[Decoded]]:
    """Decode `jobs`; `frames` [T, mels] raw log-mel: of each one's window, without the silence."""
    decoded = yield from greedy.decode_in_pieces(jobs)
    deaf = [
        i for i, (job, d) in enumerate(zip(jobs, decoded, strict=True)) if ends_early(d, frames[i])
    ]
    if deaf:
        yield
        again = yield from greedy.decode_in_pieces([_insisting(jobs[i], decoded[i]) for i in deaf])
        for i, more in zip(deaf, again, strict=True):
            if more.ending is Ending.END and more.tokens and more.mean_logprob >= SURE_LOGPROB:
                decoded[i] = _joined(decoded[i], more)
    return decoded


def speech_s(frames: Tensor, from_s: float) -> float:
    """How much of a window sounds like speech from `from_s` on: nearer to its loud than to its
    quiet parts. 0 where all is alike."""
    if not len(frames):
        return 0.0
    levels: list[float] = loudness(frames).tolist()
    quiet, loud = (_quantile(levels, share) for share in (0.1, 0.9))
    if loud - quiet < _LEAST_CONTRAST:
        return 0.0
    behind = levels[round(from_s * FRAMES_PER_SECOND) :]
    return sum(level > (quiet + loud) / 2 for level in behind) / FRAMES_PER_SECOND


def _quantile(levels: Sequence[float], share: float) -> float:
    """Between the two nearest in order. torch's own rounds otherwise on other processors."""
    ordered = sorted(levels)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def ends_early(decoded: Decoded, frames: Tensor) -> bool:
    """Whether the model called it the end with speech behind the last of some words; `frames` as
    in `decode`."""
    if decoded.ending is not Ending.END or not decoded.places_s:
        return False
    return speech_s(frames, max(decoded.places_s) + WORD_S) >= UNHEARD_S


def _insisting(job: Job, decoded: Decoded) -> Job:
    task = job.task
    forced = (*task.forced, *decoded.tokens)
    return replace(job, task=replace(task, forced=forced, draft=(), end_first=False))


def _joined(first: Decoded, more: Decoded) -> Decoded:
    return replace(
        more,
        tokens=(*first.tokens, *more.tokens),
        logprobs=(*first.logprobs, *more.logprobs),
        no_speech=first.no_speech,
        passes=first.passes + more.passes,
    )
