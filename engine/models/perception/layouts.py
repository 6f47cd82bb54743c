"""How clips read: which delimiters, and in what order sound and pictures alternate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engine.chat.render import Modality
from headstart.engine.models.perception.interface import (
    ClipTokens,
    LayoutRule,
    Shot,
    SoundTokens,
    TailPolicy,
)
from headstart.engine.models.perception.tmrope import Delimiters

Parts = list[tuple[Modality, list[int]]]


@dataclass(frozen=True, slots=True)
class OmniLayout:
    """Qwen2.5-Omni's: a clip with pictures and sound is cut in units of `unit_ids` position ids
    (2 s; sound has one id a token), and in each its pictures come before its sound.

    So sound may not be committed before its unit's pictures are in. A picture that comes late goes
    before the sound of its unit, which is then rolled back: nobody patches, the clip is laid out
    anew and the stream keeps what agrees.
    """

    delimiters: Delimiters
    unit_ids: int

    def image(self, ids: Sequence[int]) -> Parts:
        return [
            (Modality.TEXT, [self.delimiters.vision_bos]),
            (Modality.IMAGE, list(ids)),
            (Modality.TEXT, [self.delimiters.vision_eos]),
        ]

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> Parts:
        """The clip as it is to be read now."""
        known = self.delimiters
        opening, closing, body = [], [], []
        if clip.shots:
            opening, closing = [known.vision_bos], [known.vision_eos]
        if clip.sound is not None:
            opening, closing = [*opening, known.audio_bos], [known.audio_eos, *closing]
        if clip.sound is None:
            body = [_pictures(clip.shots)]
        elif not clip.shots:
            body = [(Modality.AUDIO, _heard(clip.sound, tail, clip.done))]
        else:
            body = self._units(clip, clip.sound, tail)
        done: Parts = [(Modality.TEXT, closing)] if clip.done else []
        return [(Modality.TEXT, opening), *(part for part in body if part[1]), *done]

    def _units(self, clip: ClipTokens, sound: SoundTokens, tail: TailPolicy) -> Parts:
        """Pictures and sound, unit by unit. With `CLOSED`, up to the last unit whose sound is."""
        heard = _heard(sound, tail, clip.done)
        pictured = max(shot.time for shot in clip.shots) // self.unit_ids + 1
        sounded = -(-len(heard) // self.unit_ids)
        closed = len(sound.committed) // self.unit_ids
        whole = clip.done or tail is TailPolicy.PROVISIONAL
        out: Parts = []
        for unit in range(max(pictured, sounded) if whole else closed):
            out.append(_pictures([s for s in clip.shots if s.time // self.unit_ids == unit]))
            at = unit * self.unit_ids
            out.append((Modality.AUDIO, heard[at : at + self.unit_ids]))
        return out


def _pictures(shots: Sequence[Shot]) -> tuple[Modality, list[int]]:
    ordered = sorted(shots, key=lambda shot: shot.time)
    return Modality.IMAGE, [token for shot in ordered for token in shot.ids]


def _heard(sound: SoundTokens, tail: TailPolicy, done: bool) -> list[int]:
    """Sound that is to be read now."""
    whole = done or tail is TailPolicy.PROVISIONAL
    return [*sound.committed, *sound.provisional] if whole else list(sound.committed)


@dataclass(frozen=True, slots=True)
class VideoLayout:
    """A clip's pictures one behind the other between two delimiters (Qwen2-VL), or followed by one
    closing token only (LLaVA-OneVision's `image_newline`)."""

    opening: tuple[int, ...] = ()
    closing: tuple[int, ...] = ()

    def image(self, ids: Sequence[int]) -> Parts:
        parts = [
            (Modality.TEXT, list(self.opening)),
            (Modality.IMAGE, list(ids)),
            (Modality.TEXT, list(self.closing)),
        ]
        return [part for part in parts if part[1]]

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> Parts:
        """Pictures as they come; an open clip lacks its closing."""
        parts = self.image(_pictures(clip.shots)[1]) if clip.shots else []
        return parts if clip.done or not self.closing else parts[:-1]


@dataclass(frozen=True, slots=True)
class InlineLayout:
    """Sound without delimiters of its own, in units of `unit_tokens` (`unit_s` long); before each
    unit's sound stand the pictures of its time, each by itself as `pictures` has it."""

    pictures: LayoutRule
    unit_tokens: int
    unit_s: float

    def image(self, ids: Sequence[int]) -> Parts:
        return self.pictures.image(ids)

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> Parts:
        """The clip as it is to be read now; of an open clip under `CLOSED`, closed units only."""
        sound = clip.sound or SoundTokens(())
        heard = _heard(sound, tail, clip.done)
        units: dict[int, Parts] = {}
        for shot in sorted(clip.shots, key=lambda shot: shot.time_s):
            units.setdefault(int(shot.time_s / self.unit_s), []).extend(self.image(shot.ids))
        count = -(-len(heard) // self.unit_tokens)
        if clip.done or clip.sound is None or tail is TailPolicy.PROVISIONAL:
            count = max(count, *(unit + 1 for unit in units)) if units else count
        out: Parts = []
        for unit in range(count):
            out += units.get(unit, [])
            part = heard[unit * self.unit_tokens : (unit + 1) * self.unit_tokens]
            out += [(Modality.AUDIO, part)] if part else []
        return out
