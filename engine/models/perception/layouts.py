"""Layouts of clips: their delimiters, and the order of sound and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from headstart.engine.chat.render import Modality
from headstart.engine.models.perception.interface import (
    ClipTokens,
    LayoutRule,
    SoundTokens,
    TailPolicy,
    UnitTokens,
)
from headstart.engine.models.perception.tmrope import Delimiters

TokenRuns = list[tuple[Modality, list[int]]]


@dataclass(frozen=True, slots=True)
class OmniLayout:
    """Qwen2.5-Omni's layout: a clip with pictures and sound is split into units of `unit_ids`
    position ids (2 s; sound has one id per token), and in each unit pictures come before sound.

    So sound cannot be committed before its unit's pictures are known. A late picture goes before
    its unit's sound, which is then rolled back: the clip is laid out again, and the stream keeps
    the common prefix.
    """

    delimiters: Delimiters
    unit_ids: int

    def image(self, ids: Sequence[int]) -> TokenRuns:
        return [
            (Modality.TEXT, [self.delimiters.vision_bos]),
            (Modality.IMAGE, list(ids)),
            (Modality.TEXT, [self.delimiters.vision_eos]),
        ]

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        return list(ids)

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> TokenRuns:
        """The clip's tokens to read now."""
        known = self.delimiters
        opening, closing, body = [], [], []
        if clip.units:
            opening, closing = [known.vision_bos], [known.vision_eos]
        if clip.sound is not None:
            opening, closing = [*opening, known.audio_bos], [known.audio_eos, *closing]
        if clip.sound is None:
            body = [_pictures(clip.units)]
        elif not clip.units:
            body = [(Modality.AUDIO, _heard(clip.sound, tail, clip.done))]
        else:
            body = self._units(clip, clip.sound, tail)
        done: TokenRuns = [(Modality.TEXT, closing)] if clip.done else []
        return [(Modality.TEXT, opening), *(part for part in body if part[1]), *done]

    def _units(self, clip: ClipTokens, sound: SoundTokens, tail: TailPolicy) -> TokenRuns:
        """Pictures and sound, unit by unit. With `CLOSED`, up to the last closed unit of sound."""
        heard = _heard(sound, tail, clip.done)
        picture_units = max(shot.time for shot in clip.units) // self.unit_ids + 1
        sound_units = -(-len(heard) // self.unit_ids)
        closed = len(sound.committed) // self.unit_ids
        whole = clip.done or tail is TailPolicy.PROVISIONAL
        out: TokenRuns = []
        for unit in range(max(picture_units, sound_units) if whole else closed):
            out.append(_pictures([s for s in clip.units if s.time // self.unit_ids == unit]))
            at = unit * self.unit_ids
            out.append((Modality.AUDIO, heard[at : at + self.unit_ids]))
        return out


def _pictures(shots: Sequence[UnitTokens]) -> tuple[Modality, list[int]]:
    ordered = sorted(shots, key=lambda shot: shot.time)
    return Modality.IMAGE, [token for shot in ordered for token in shot.ids]


def _heard(sound: SoundTokens, tail: TailPolicy, done: bool) -> list[int]:
    """The sound tokens to read now."""
    whole = done or tail is TailPolicy.PROVISIONAL
    return [*sound.committed, *sound.provisional] if whole else list(sound.committed)


@dataclass(frozen=True, slots=True)
class VideoLayout:
    """A clip's pictures in sequence between two delimiters (Qwen2-VL), or without any
    (LLaVA-OneVision, whose `image_newline` is an embedding)."""

    opening: tuple[int, ...] = ()
    closing: tuple[int, ...] = ()

    def image(self, ids: Sequence[int]) -> TokenRuns:
        parts = [
            (Modality.TEXT, list(self.opening)),
            (Modality.IMAGE, list(ids)),
            (Modality.TEXT, list(self.closing)),
        ]
        return [part for part in parts if part[1]]

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        return list(ids)

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> TokenRuns:
        """The pictures in order; an open clip has no closing delimiter yet."""
        parts = self.image(_pictures(clip.units)[1]) if clip.units else []
        return parts if clip.done or not self.closing else parts[:-1]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Pixtral's layout: a token behind each row of a picture, another one behind the last row.
    Pictures need nothing else around them."""

    row_end: int
    picture_end: int

    def image(self, ids: Sequence[int]) -> TokenRuns:
        return [(Modality.IMAGE, list(ids))]

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        laid_out: list[int] = []
        for _, cells in groupby(zip(rows, ids, strict=True), key=lambda cell: cell[0]):
            laid_out += [*(token for _, token in cells), self.row_end]
        return [*laid_out[:-1], self.picture_end]

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> TokenRuns:
        """The pictures in order."""
        return [_pictures(clip.units)] if clip.units else []


@dataclass(frozen=True, slots=True)
class InlineLayout:
    """Sound without delimiters, in units of `unit_tokens` (`unit_s` long). Each unit's pictures
    come before its sound, each laid out by `pictures`."""

    pictures: LayoutRule
    unit_tokens: int
    unit_s: float

    def image(self, ids: Sequence[int]) -> TokenRuns:
        return self.pictures.image(ids)

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        return self.pictures.unit(ids, rows)

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> TokenRuns:
        """The clip's tokens to read now; of an open clip under `CLOSED`, closed units only."""
        sound = clip.sound or SoundTokens(())
        heard = _heard(sound, tail, clip.done)
        units: dict[int, TokenRuns] = {}
        for shot in sorted(clip.units, key=lambda shot: shot.time_s):
            units.setdefault(int(shot.time_s / self.unit_s), []).extend(self.image(shot.ids))
        count = -(-len(heard) // self.unit_tokens)
        if clip.done or clip.sound is None or tail is TailPolicy.PROVISIONAL:
            count = max(count, *(unit + 1 for unit in units)) if units else count
        out: TokenRuns = []
        for unit in range(count):
            out += units.get(unit, [])
            part = heard[unit * self.unit_tokens : (unit + 1) * self.unit_tokens]
            out += [(Modality.AUDIO, part)] if part else []
        return out
