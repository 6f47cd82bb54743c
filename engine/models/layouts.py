"""How clips read: which delimiters, and in what order sound and pictures alternate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.layout import Modality
from engine.models.interface import Clip, Shot, Sound, TailPolicy
from engine.models.tmrope import Delimiters

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

    def clip(self, clip: Clip, tail: TailPolicy) -> Parts:
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

    def _units(self, clip: Clip, sound: Sound, tail: TailPolicy) -> Parts:
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


def _heard(sound: Sound, tail: TailPolicy, done: bool) -> list[int]:
    """Sound that is to be read now."""
    whole = done or tail is TailPolicy.PROVISIONAL
    return [*sound.committed, *sound.provisional] if whole else list(sound.committed)
