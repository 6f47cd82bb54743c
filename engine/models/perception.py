"""What one clip is to a model, as it is heard and seen: from sound and frames to token ids.

The link between a model's encoders and a stream. It holds no K/V: `parts` says what the stream
should read, and `Stream.reconcile` finds out what of it is new.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.layout import Modality
from engine.models.interface import Clip, Frame, Shot, Sound, StreamModel, TailPolicy, VisionUnit
from engine.positions import Place, PlaceKind
from engine.soft_tokens import SoftTokens

_SOUND = Place(PlaceKind.AUDIO)


class Perception:
    """One clip. Embeddings are interned in `soft`."""

    def __init__(self, model: StreamModel, soft: SoftTokens, tail: TailPolicy) -> None:
        self._model, self._soft, self._tail = model, soft, tail
        self._audio = model.open_audio(tail) if model.spec.audio is not None else None
        self._frames = model.open_frames() if model.spec.vision is not None else None
        self._committed: list[int] = []
        self._provisional: list[int] = []
        self._ending: list[int] | None = None  # sound's end, while the clip may go on after all
        self._shots: list[Shot] = []
        self._last_shots: list[Shot] = []  # of frames that lack a partner
        self._heard = False

    @property
    def sound_tokens(self) -> int:
        """Tokens of sound so far, provisional ones too."""
        ending = self._provisional if self._ending is None else self._ending
        return len(self._committed) + len(ending)

    def hear(self, pcm: Tensor) -> None:
        """Take [samples] fp32 at 16 kHz. After `finish`, the clip goes on."""
        self._ending, self._last_shots, self._heard = None, [], True
        out = self._model.encode_audio(pcm, self._audio, False)
        self._audio = out.state
        self._committed += self._sound_ids(out.committed)
        self._provisional = self._sound_ids(out.provisional)

    def see(self, frames: Sequence[Frame]) -> None:
        """Take frames in the order of their times."""
        self._ending, self._last_shots = None, []
        units, self._frames = self._model.encode_frames(frames, self._frames, False)
        self._shots += [self._shot(unit) for unit in units]

    def finish(self) -> None:
        """Encode the open units as if the clip ended here. What follows undoes it."""
        if self._heard and self._ending is None:
            out = self._model.encode_audio(torch.empty(0), self._audio, True)
            self._ending = self._sound_ids(out.committed)
        if self._frames is not None and not self._last_shots:
            units, _ = self._model.encode_frames([], self._frames, True)
            self._last_shots = [self._shot(unit) for unit in units]

    def parts(self) -> list[tuple[Modality, list[int]]]:
        """What of the clip is to be read now; after `finish`, all of it."""
        ending = self._provisional if self._ending is None else self._ending
        sound = Sound(self._committed, ending) if self._heard else None
        done = self._ending is not None or (not self._heard and bool(self._last_shots))
        clip = Clip(sound, (*self._shots, *self._last_shots), done)
        return self._model.layout.clip(clip, self._tail)

    def ids(self) -> list[int]:
        """`parts` as one list."""
        return [token for _, ids in self.parts() for token in ids]

    def _sound_ids(self, features: Tensor) -> list[int]:
        if not len(features):
            return []
        vectors = self._model.project(features, Modality.AUDIO)
        return self._soft.intern(vectors.numpy(), [_SOUND] * len(vectors))

    def _shot(self, unit: VisionUnit) -> Shot:
        time = int(unit.time_s * self._model.ids_per_second)
        return Shot(tuple(see_unit(self._model, self._soft, unit, PlaceKind.VIDEO, time)), time)


def see_unit(
    model: StreamModel, soft: SoftTokens, unit: VisionUnit, kind: PlaceKind, time: int = 0
) -> list[int]:
    """A vision unit's token ids in `soft`, each placed in the unit's grid."""
    vectors = model.project(unit.features, Modality.IMAGE)
    grid = np.ndindex(unit.rows, unit.columns)
    places = [Place(kind, time, row, column) for row, column in grid]
    return soft.intern(vectors.numpy(), places)
