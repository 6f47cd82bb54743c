"""Looking at one frame: what it shows, how sure that is, and whether anything changed.

eyes = Eyes.load(efficientnet_path, names_path)
sight = eyes.look(rgb)
sight.label, sight.probability      "tiger cat", 0.41
sight.kind, sight.kind_probability  "cat", 0.92
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from headstart.engine.errors import EngineError
from headstart.engine.vision.efficientnet import EfficientNetLite0, load
from headstart.engine.vision.faces import Faces
from headstart.engine.vision.names import Names, load_names
from headstart.engine.vision.pixels import Rgb, describe

ALTERNATIVES = 4

# Two frames show the same when their pooled features point the same way and it is about as light.
# Measured on 20 photographs: noise, shifts by a tenth, mirroring and zooming by 30 % stay above
# 0.62; any two different ones stay below 0.47.
_SAME_COSINE = 0.6
_SAME_LUMA = 0.15

_MAJORITY = 0.5


class BadPicture(EngineError):
    """An array that is no RGB picture."""

    code = "bad_picture"

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"a picture must be {expected}, got {got}")
        self.expected = expected
        self.got = got


@dataclass(frozen=True)
class Sight:
    """What one frame shows.

    `probability` is the network's for `label`, all classes of that name together; `kind` is the
    broader word that `label` falls under ("dog"), with the sum over its classes, or None.
    `alternatives` are the next likely names; `people` counts faces. `is_blank`: nothing to see,
    `label` means nothing.
    """

    label: str
    probability: float
    alternatives: tuple[tuple[str, float], ...]
    kind: str | None
    kind_probability: float
    brightness: str
    colour: str
    is_blank: bool
    luma: float
    features: npt.NDArray[np.float32] = field(repr=False, compare=False)  # [1280], unit length
    people: int = 0

    def same_as(self, other: Sight) -> bool:
        """Whether `other` shows the same scene in about the same light."""
        if self.is_blank or other.is_blank:
            return self.is_blank == other.is_blank and self.colour == other.colour
        if self.people != other.people:
            return False
        cosine = float(self.features @ other.features)
        return cosine >= _SAME_COSINE and abs(self.luma - other.luma) <= _SAME_LUMA


class FrameLabeller:
    """The image network with names for what it finds. Holds no state between frames."""

    def __init__(self, net: EfficientNetLite0, names: Names, faces: Faces | None = None) -> None:
        """Without `faces` nobody is ever seen: ImageNet has no class for people."""
        self._net = net
        self._names = names
        self._faces = faces

    @classmethod
    def load(
        cls, efficientnet_path: Path, names_path: Path, faces_path: Path | None = None
    ) -> FrameLabeller:
        """From the packaged weights; the last two are the folders of "imagenet-names" and "mtcnn".

        Raises BadWeights saying which file and what is wrong with it.
        """
        faces = None if faces_path is None else Faces.load(faces_path)
        return cls(load(efficientnet_path), load_names(names_path), faces)

    def look(self, rgb: Rgb) -> Sight:
        """What `rgb`, uint8 [H, W, 3], shows. Raises BadPicture."""
        return self.look_at_all([rgb])[0]

    def look_at_all(self, pictures: list[Rgb]) -> list[Sight]:
        """The same for several pictures of one size in one pass."""
        if not pictures:
            return []
        for rgb in pictures:
            _check(rgb, pictures[0].shape)
        scores = self._net.look(torch.from_numpy(np.stack(pictures)))
        probabilities = scores.logits.softmax(dim=-1).numpy()
        lengths = scores.features.norm(dim=1, keepdim=True).clamp_min(1e-12)
        features = (scores.features / lengths).numpy()
        return [self._sight(rgb, probabilities[i], features[i]) for i, rgb in enumerate(pictures)]

    def _sight(
        self, rgb: Rgb, probabilities: npt.NDArray[np.float32], features: npt.NDArray[np.float32]
    ) -> Sight:
        by_name: dict[str, float] = defaultdict(float)
        by_kind: dict[str, float] = defaultdict(float)
        kind_of: dict[str, str | None] = {}
        for number, probability in enumerate(probabilities.tolist()):
            name, kind = self._names.names[number], self._names.kinds[number]
            by_name[name] += probability
            kind_of.setdefault(name, kind)
            if kind is not None:
                by_kind[kind] += probability
        best = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
        likeliest = max(by_kind, key=lambda name: (by_kind[name], name))
        if by_kind[likeliest] >= _MAJORITY:
            # Forty breeds may each be less likely than one wrong guess: the kind decides.
            best.sort(key=lambda item: kind_of[item[0]] != likeliest)
        label, probability = best[0]
        kind = kind_of[label]
        look = describe(rgb)
        return Sight(
            label=label,
            probability=probability,
            alternatives=tuple(best[1 : 1 + ALTERNATIVES]),
            kind=kind,
            kind_probability=0.0 if kind is None else by_kind[kind],
            brightness=look.brightness,
            colour=look.colour,
            is_blank=look.is_blank,
            luma=look.luma,
            features=features,
            people=0 if self._faces is None or look.is_blank else len(self._faces.find(rgb)),
        )


def _check(rgb: Rgb, shape: tuple[int, ...]) -> None:
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise BadPicture("uint8 [H, W, 3] with H, W >= 1", f"{rgb.dtype} {list(rgb.shape)}")
    if rgb.shape != shape:
        raise BadPicture(f"{list(shape)} like the others of its batch", f"{list(rgb.shape)}")
