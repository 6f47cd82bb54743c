"""Faces are found where they are, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine.errors import BadWeights
from headstart.engine.vision.faces import MAX_CANDIDATES, PROPOSE_FILE, Faces, _distinct
from headstart.engine.vision.pixels import Rgb

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def faces(faces_path: Path) -> Faces:
    return Faces.load(faces_path)


def test_a_face_is_found_where_it_is(faces: Faces, astronaut: Rgb) -> None:
    """The astronaut's face is the only one: a fifth of the picture high, at its upper middle."""
    (face,) = faces.find(astronaut)
    assert face.probability > 0.97
    assert 0.15 < face.height < 0.3
    assert face.centre == pytest.approx((0.43, 0.23), abs=0.05)


def test_a_face_is_found_at_any_size_of_picture(faces: Faces, astronaut: Rgb) -> None:
    """Larger, smaller, wider, mirrored, darker or noisier: still one face."""
    noise = np.random.default_rng(0).normal(0, 8, astronaut.shape)
    for picture in (
        astronaut.repeat(3, axis=0).repeat(3, axis=1),
        astronaut[::2, ::2],
        np.pad(astronaut, ((0, 0), (90, 90), (0, 0)), mode="edge"),
        astronaut[:, ::-1],
        astronaut // 2,
        np.clip(astronaut + noise, 0, 255).astype(np.uint8),
    ):
        assert len(faces.find(np.ascontiguousarray(picture))) == 1


def test_two_faces_are_two(faces: Faces, astronaut: Rgb) -> None:
    """Side by side each is counted once."""
    found = faces.find(np.concatenate([astronaut, astronaut[:, ::-1]], axis=1))
    assert len(found) == 2
    assert sorted(face.centre[0] for face in found) == pytest.approx([0.215, 0.785], abs=0.04)


def test_a_face_cut_by_the_edge_is_found(faces: Faces, astronaut: Rgb) -> None:
    """A face whose top is outside of the picture, as when someone sits too close."""
    assert len(faces.find(np.ascontiguousarray(astronaut[44:220, 50:250]))) == 1


def test_no_face_is_found_without_faces(faces: Faces, cat: Rgb, coffee: Rgb) -> None:
    """A cat's face, a cup, noise, plain grey and a picture of one pixel are no people."""
    noise = np.random.default_rng(1).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    plain = np.full((240, 320, 3), 127, np.uint8)
    dot = np.zeros((1, 1, 3), np.uint8)
    strip = np.zeros((2, 900, 3), np.uint8)
    for picture in (cat, coffee, noise, plain, dot, strip):
        assert faces.find(picture) == []


def test_a_crowd_costs_no_more_than_the_bound(
    faces: Faces, astronaut: Rgb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many windows look promising, the second net sees at most MAX_CANDIDATES."""
    seen: list[int] = []
    refine = faces._refine.forward

    def counted(crops: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(len(crops))
        found: tuple[torch.Tensor, torch.Tensor] = refine(crops)
        return found

    monkeypatch.setattr(faces._refine, "forward", counted)
    head = astronaut[20:130, 80:190]
    faces.find(np.tile(head, (5, 5, 1)))
    assert seen == [MAX_CANDIDATES]


def test_of_overlapping_boxes_the_best_stays() -> None:
    """Suppression keeps the most probable of each heap, best first; `of_smaller` also drops a
    box inside of another."""
    boxes = np.array(
        [[0, 0, 10, 10, 0.7], [1, 0, 11, 10, 0.9], [50, 50, 60, 60, 0.8], [2, 2, 5, 5, 0.6]],
        np.float32,
    )
    assert _distinct(boxes, 0.5)[:, 4].tolist() == pytest.approx([0.9, 0.8, 0.6])
    assert _distinct(boxes, 0.5, of_smaller=True)[:, 4].tolist() == pytest.approx([0.9, 0.8])
    assert len(_distinct(boxes[:0], 0.5)) == 0


def test_bad_files_are_named(tmp_path: Path) -> None:
    """No file, no state dict, tensors of another net: BadWeights says which file and what."""
    path = tmp_path / PROPOSE_FILE
    with pytest.raises(BadWeights, match=PROPOSE_FILE):
        Faces.load(tmp_path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BadWeights, match=f"{PROPOSE_FILE}.*state dict"):
        Faces.load(tmp_path)
    torch.save({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(BadWeights, match=r"conv1\.weight.*\(10, 3, 3, 3\).*\(1,\)"):
        Faces.load(tmp_path)
