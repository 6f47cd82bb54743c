"""Labels for one frame: what it shows, with probabilities.

labeller = FrameLabeller.load(efficientnet_path, names_path)
labels = labeller.label(rgb)
labels.label, labels.probability      "tiger cat", 0.41
labels.kind, labels.kind_probability  "cat", 0.92
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
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

_MAJORITY = 0.5


class BadPicture(EngineError):
    """An array that is not an RGB picture."""

    code = "bad_picture"

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"a picture must be {expected}, got {got}")
        self.expected = expected
        self.got = got


@dataclass(frozen=True)
class FrameLabels:
    """What one frame shows.

    `probability`: of `label`, summed over all classes with that name. `kind`: the broader word for
    `label` ("dog") or None; `kind_probability`: summed over its classes. `alternatives`: the next
    likely names. `people`: number of faces. `is_blank`: the picture shows nothing, and `label` is
    meaningless.
    """

    label: str
    probability: float
    alternatives: tuple[tuple[str, float], ...]
    kind: str | None
    kind_probability: float
    brightness: str
    colour: str
    is_blank: bool
    people: int = 0


class FrameLabeller:
    """The image network with names for its classes. Holds no state between frames."""

    def __init__(self, net: EfficientNetLite0, names: Names, faces: Faces | None = None) -> None:
        """Without `faces` people are not detected: ImageNet has no class for them."""
        self._net = net
        self._names = names
        self._faces = faces

    @classmethod
    def load(
        cls, efficientnet_path: Path, names_path: Path, faces_path: Path | None = None
    ) -> FrameLabeller:
        """From the packaged weights; the last two are the folders of "imagenet-names" and "mtcnn".

        Raises `BadWeights` naming the file and its fault.
        """
        faces = None if faces_path is None else Faces.load(faces_path)
        return cls(load(efficientnet_path), load_names(names_path), faces)

    def label(self, rgb: Rgb) -> FrameLabels:
        """What `rgb`, uint8 [H, W, 3], shows. Raises `BadPicture`."""
        return self.label_all([rgb])[0]

    def label_all(self, pictures: list[Rgb]) -> list[FrameLabels]:
        """The same for several pictures of one size in one pass."""
        if not pictures:
            return []
        for rgb in pictures:
            _check(rgb, pictures[0].shape)
        scores = self._net.scores(torch.from_numpy(np.stack(pictures)))
        probabilities = scores.logits.softmax(dim=-1).numpy()
        return [self._labels(rgb, probabilities[i]) for i, rgb in enumerate(pictures)]

    def _labels(self, rgb: Rgb, probabilities: npt.NDArray[np.float32]) -> FrameLabels:
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
            # Forty breeds may each be less likely than one wrong class: the kind decides.
            best.sort(key=lambda item: kind_of[item[0]] != likeliest)
        label, probability = best[0]
        kind = kind_of[label]
        properties = describe(rgb)
        return FrameLabels(
            label=label,
            probability=probability,
            alternatives=tuple(best[1 : 1 + ALTERNATIVES]),
            kind=kind,
            kind_probability=0.0 if kind is None else by_kind[kind],
            brightness=properties.brightness,
            colour=properties.colour,
            is_blank=properties.is_blank,
            people=0 if self._faces is None or properties.is_blank else len(self._faces.find(rgb)),
        )


def _check(rgb: Rgb, shape: tuple[int, ...]) -> None:
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise BadPicture("uint8 [H, W, 3] with H, W >= 1", f"{rgb.dtype} {list(rgb.shape)}")
    if rgb.shape != shape:
        raise BadPicture(f"{list(shape)} like the others of its batch", f"{list(rgb.shape)}")
