"""Qwen's multimodal positions (M-RoPE), computed token by token.

A segment begins one behind the greatest id of the previous segment. Words and sound have equal
ids on all three axes, counting by one. A picture has one time id and spreads over height and width.
In a clip with sound (TMRoPE) pictures and sound count from the same start, by their own time:

    <|vision_bos|><|audio_bos|>   one position p for both; the clip counts from p + 1
    video                         (start + time, start + row, start + column)
    sound                         start + number of sound tokens before it, on all axes
    <|audio_eos|><|vision_eos|>   one position for both, behind the last piece

Answers continue from the greatest id of *everything*, which may lie behind the last word: a wide
picture reaches further than a short sound beside it. Text counts on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from headstart.engine.kvcache.positions import Axes, MediaKind, MediaPosition


@dataclass(frozen=True, slots=True)
class Delimiters:
    """Tokens that affect positions. `answer_opening`: the tokens before an answer."""

    vision_bos: int
    vision_eos: int
    audio_bos: int = -1
    audio_eos: int = -1
    answer_opening: tuple[int, ...] = ()


@dataclass(slots=True)
class _State:
    last: int = -1  # greatest id of the previous segment, or of the present one so far
    top: int = -1  # greatest id of all
    start: int = 0  # base of the clip's ids
    sounds: int = 0  # sound tokens in the open clip
    with_sound: bool = False  # whether the open clip has pictures and sound
    in_picture: bool = False  # whether the previous token was a picture's
    before: int = -1  # the previous token
    opening: int = 0  # tokens of `answer_opening` just matched


class TmRope:
    """Qwen's position rule (`headstart.engine.kvcache.positions.PositionRule`)."""

    def __init__(self, delimiters: Delimiters) -> None:
        self._delimiters = delimiters
        self._state = _State()

    def snapshot(self) -> tuple[Any, ...]:
        return astuple(self._state)

    def restore(self, snapshot: Any) -> None:
        self._state = _State(*snapshot)

    def advance(self, token: int, media: MediaPosition | None) -> Axes:
        """Position of the next token."""
        state = self._state
        if media is None:
            axes = self._word(token)
        elif media.kind is MediaKind.AUDIO:
            at = state.start + state.sounds if state.with_sound else state.last + 1
            state.sounds += state.with_sound
            axes = (at, at, at)
            state.last, state.in_picture = at, False
        else:
            axes = self._picture(media)
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

    def _picture(self, media: MediaPosition) -> Axes:
        state = self._state
        if not state.in_picture and not state.with_sound:
            state.start = state.last + 1
        axes = (state.start + media.time, state.start + media.row, state.start + media.column)
        state.last = max(state.last, *axes) if state.in_picture else max(axes)
        state.in_picture = True
        return axes


def _progress(opening: Sequence[int], read: int, token: int) -> int:
    """Number of tokens of `opening` matched after `token`, with `read` matched before it."""
    if read < len(opening) and token == opening[read]:
        return read + 1
    return int(bool(opening) and token == opening[0])
