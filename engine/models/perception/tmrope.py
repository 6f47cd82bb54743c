"""Qwen's multimodal positions (M-RoPE), followed token by token.

A segment begins one behind the greatest id of the segment before it. Words and sound: all three
axes equal, one more each. A picture stands still in time and spreads over height and width. In a
clip with sound (TMRoPE) pictures and sound count from the same start, by their own time:

    <|vision_bos|><|audio_bos|>   one position p for both; the clip counts from p + 1
    video                         (start + time, start + row, start + column)
    sound                         start + how many came before it, on all axes
    <|audio_eos|><|vision_eos|>   one position for both, behind the piece that came last

Answers go on from the greatest id of *everything*, which can lie behind the last word: a wide
picture reaches further than a short sound beside it. Then text counts on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from headstart.engine.kvcache.positions import Axes, MediaKind, MediaPosition


@dataclass(frozen=True, slots=True)
class Delimiters:
    """Tokens that matter to positions. `answer_opening` is what stands before an answer."""

    vision_bos: int
    vision_eos: int
    audio_bos: int = -1
    audio_eos: int = -1
    answer_opening: tuple[int, ...] = ()


@dataclass(slots=True)
class _State:
    last: int = -1  # greatest id of the segment before, or of the one that is being read
    top: int = -1  # greatest id of all
    start: int = 0  # where the clip's ids count from
    sounds: int = 0  # tokens of sound in the open clip
    with_sound: bool = False  # the open clip has pictures and sound
    in_picture: bool = False  # the token before was of a picture
    before: int = -1  # the token before
    opening: int = 0  # tokens of `answer_opening` just read


class TmRope:
    """The rule (`headstart.engine.kvcache.positions.PositionRule`)."""

    def __init__(self, delimiters: Delimiters) -> None:
        self._delimiters = delimiters
        self._state = _State()

    def snapshot(self) -> tuple[Any, ...]:
        return astuple(self._state)

    def restore(self, snapshot: Any) -> None:
        self._state = _State(*snapshot)

    @property
    def next_generated(self) -> int:
        """The id that an answer would begin with."""
        return self._state.top + 1

    def advance(self, token: int, place: MediaPosition | None) -> Axes:
        """Position of the next token."""
        state = self._state
        if place is None:
            axes = self._word(token)
        elif place.kind is MediaKind.AUDIO:
            at = state.start + state.sounds if state.with_sound else state.last + 1
            state.sounds += state.with_sound
            axes = (at, at, at)
            state.last, state.in_picture = at, False
        else:
            axes = self._picture(place)
        state.top = max(state.top, *axes)
        state.before = token
        return axes

    def _word(self, token: int) -> Axes:
        state, known = self._state, self._delimiters
        opens_clip = token == known.audio_bos and state.before == known.vision_bos
        closes_clip = state.with_sound and token == known.vision_eos
        if opens_clip or (closes_clip and state.before == known.audio_eos):
            at = state.last  # the second of two delimiters that share a position
        elif known.answer_opening and state.opening == len(known.answer_opening):
            at = state.top + 1
        else:
            at = state.last + 1
        if opens_clip:
            state.with_sound, state.start, state.sounds = True, at + 1, 0
        elif closes_clip:
            state.with_sound = False
        state.last, state.in_picture = at, False
        state.opening = _progress(known.answer_opening, state.opening, token)
        return at, at, at

    def _picture(self, place: MediaPosition) -> Axes:
        state = self._state
        if not state.in_picture and not state.with_sound:
            state.start = state.last + 1
        axes = (state.start + place.time, state.start + place.row, state.start + place.column)
        state.last = max(state.last, *axes) if state.in_picture else max(axes)
        state.in_picture = True
        return axes


def _progress(opening: Sequence[int], read: int, token: int) -> int:
    """How many tokens of `opening` have been read, `read` of them before `token`."""
    if read < len(opening) and token == opening[read]:
        return read + 1
    return int(bool(opening) and token == opening[0])
