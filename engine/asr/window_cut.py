"""Where a window of unbroken speech can be cut, so that the sound before it may be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headstart.engine.asr.hypothesis import Word
from headstart.engine.asr.mel import FRAMES_PER_SECOND, loudness

_SENTENCE_ENDS = (".", "?", "!")
# Attention marks a word's onset within about this much.
_ONSET_ERROR_S = 0.1
_SMOOTH_FRAMES = 5


@dataclass(frozen=True)
class Cut:
    """Drop the first `frame` frames, which hold the first `words` words."""

    frame: int
    words: int


def find_cut(
    frames: Tensor,
    words: Sequence[Word],
    places_s: Sequence[float],
    *,
    committed: int,
    keep_s: float,
    force: bool,
) -> Cut | None:
    """The best cut of a window, or None.

    `frames` [T, mels] raw log-mel; `places_s`: of every token of `words`; of these the first
    `committed` are. A good cut lies between two words that are each on their side of it as all
    others are, leaves `keep_s` of sound, and prefers a sentence's end. With `force` there is always
    a cut, `keep_s` before the end, and words before it count as committed.
    """
    starts_s = onsets_s(words, places_s)
    latest_s = len(frames) / FRAMES_PER_SECOND - keep_s
    good = [
        count
        for count in range(1, min(committed, len(starts_s) - 1) + 1)
        if starts_s[count] <= latest_s
        and max(starts_s[:count]) < starts_s[count] <= min(starts_s[count:])
    ]
    if good:
        ends = [count for count in good if words[count - 1].text.endswith(_SENTENCE_ENDS)]
        count = (ends or good)[-1]
        frame = _quietest(frames, starts_s[count - 1], starts_s[count] + _ONSET_ERROR_S)
        return Cut(frame, count)
    if force:
        before = sum(onset < latest_s for onset in starts_s)
        return Cut(_quietest(frames, latest_s - 0.5, latest_s + 0.5), before)
    return None


def onsets_s(words: Sequence[Word], places_s: Sequence[float]) -> list[float]:
    """Place of each word's first token, for as many words as have one."""
    onsets = []
    at = 0
    for word in words:
        if at >= len(places_s):
            break
        onsets.append(places_s[at])
        at += len(word.tokens)
    return onsets


def _quietest(frames: Tensor, start_s: float, end_s: float) -> int:
    """The frame of least power, smoothed, between two times."""
    start = int(start_s * FRAMES_PER_SECOND)
    end = max(int(end_s * FRAMES_PER_SECOND), start + 1)
    levels = loudness(frames[start : end + _SMOOTH_FRAMES])
    if len(levels) <= _SMOOTH_FRAMES:
        return min(start, len(frames))
    smooth = loudness(levels.unfold(0, _SMOOTH_FRAMES, 1))
    return start + int(smooth.argmin()) + _SMOOTH_FRAMES // 2
