"""Class names that people use."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.errors import BadWeights
from headstart.engine.vision.names import (
    KINDS,
    LEMMAS_FILE,
    SYNSETS_FILE,
    everyday_name,
    load_names,
)


@pytest.mark.parametrize(
    ("lemmas", "name"),
    [
        ("tabby, tabby cat", "tabby cat"),
        ("tiger cat", "tiger cat"),
        ("great white shark, white shark, man-eater", "great white shark"),
        ("ashcan, trash can, garbage can", "trash can"),
        ("church, church building", "church"),
        ("Pembroke, Pembroke Welsh corgi", "Pembroke Welsh corgi"),
        ("projectile, missile", "missile"),
    ],
)
def test_names_are_everyday_words(lemmas: str, name: str) -> None:
    """The first word, a longer one that it begins, or the everyday one."""
    assert everyday_name(lemmas.split(", ")) == name


@pytest.mark.weights
def test_packaged_names(imagenet_names_path: Path) -> None:
    """All thousand have a name without a comma; homonyms are told apart, synonyms joined."""
    names = load_names(imagenet_names_path).names
    assert len(names) == 1000
    assert not [name for name in names if "," in name or not name.strip()]
    assert (names[281], names[504], names[985]) == ("tabby cat", "coffee mug", "daisy")
    assert names[657] == names[744] == "missile"
    assert names[836] == names[837] == "sunglasses"
    assert (names[134], names[517]) == ("crane bird", "construction crane")


@pytest.mark.weights
def test_kinds_hold_what_they_say(imagenet_names_path: Path) -> None:
    """Both ends of the large ranges are of the kind, their outer neighbours aren't."""
    names = load_names(imagenet_names_path)
    ends = {
        "dog": ("Chihuahua", "hairless dog"),
        "cat": ("tabby cat", "Egyptian cat"),
        "snake": ("thunder snake", "sidewinder"),
        "butterfly": ("admiral", "lycaenid butterfly"),
        "bear": ("brown bear", "sloth bear"),
    }
    for kind, (first, last) in ends.items():
        ours = [name for name, its in zip(names.names, names.kinds, strict=True) if its == kind]
        assert (ours[0], ours[-1]) == (first, last)
    for neighbour in ("sea lion", "timber wolf", "jellyfish"):
        assert names.kinds[names.names.index(neighbour)] is None
    assert names.kinds[names.names.index("palace")] == "building"


def test_no_class_has_two_kinds() -> None:
    """Ranges don't overlap and lie inside the thousand."""
    numbers = [
        number for kind in KINDS for first, last in kind.spans for number in range(first, last + 1)
    ]
    assert len(numbers) == len(set(numbers))
    assert min(numbers) >= 0
    assert max(numbers) < 1000


def test_bad_files_are_named(tmp_path: Path) -> None:
    """A missing file, too few ids, a line without a tab and an id without words are each said."""
    with pytest.raises(BadWeights, match=f"{SYNSETS_FILE}: file: expected a file"):
        load_names(tmp_path)
    (tmp_path / SYNSETS_FILE).write_text("n1\nn2\n")
    with pytest.raises(BadWeights, match=f"{SYNSETS_FILE}: lines: expected 1000, got 2"):
        load_names(tmp_path)
    (tmp_path / SYNSETS_FILE).write_text("\n".join(f"n{i}" for i in range(1000)))
    (tmp_path / LEMMAS_FILE).write_text("n0\tone\nn1 two\n")
    with pytest.raises(BadWeights, match=f"{LEMMAS_FILE}: line 2"):
        load_names(tmp_path)
    (tmp_path / LEMMAS_FILE).write_text("n0\tone\n")
    with pytest.raises(BadWeights, match="one line for n1"):
        load_names(tmp_path)
    (tmp_path / LEMMAS_FILE).write_bytes(b"\xff")
    with pytest.raises(BadWeights, match="UTF-8"):
        load_names(tmp_path)
