"""The packaged manifest is sound, and a bad one is refused with the entry's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.weights.errors import ManifestError, UnknownName
from headstart.engine.weights.manifest import PypiSource, load, packaged, parse
from tests.engine.weights.helpers import (
    BIG_TEXT,
    FOLDER_TEXT,
    MANIFEST_TEXT,
    SMALL_TEXT,
    model_text,
)


def test_packaged_models_have_every_part_and_a_licence() -> None:
    """`small` and `tiny` resolve to six weights each; every weight states licence and origin."""
    manifest = packaged()
    assert manifest.model("small").fallback == "tiny"
    for name in ("small", "tiny"):
        assert len(manifest.members(name)) == 6
    for weight in manifest.weights:
        assert weight.licence, weight.name
        assert weight.licence_from, weight.name


def test_packaged_six_parts_add_up() -> None:
    """The default LLM's six parts are the 491,400,064 bytes of its file, in order."""
    weight = packaged().weight("qwen2.5-coder-0.5b")
    (source,) = (source for source in weight.source if isinstance(source, PypiSource))
    assert [part.package[-1] for part in source.part] == list("123456")
    assert sum(part.size_bytes or 0 for part in source.part) == weight.size_bytes == 491_400_064


def test_members_of_a_weight_is_itself() -> None:
    """A name may be a model or a weight; anything else lists what is known."""
    manifest = parse(MANIFEST_TEXT)
    assert [weight.name for weight in manifest.members("large")] == ["big", *["folder"] * 3]
    assert [weight.name for weight in manifest.members("little")] == ["little"]
    with pytest.raises(UnknownName, match=r"'nope'; known: large, least, big, little, folder"):
        manifest.members("nope")


def test_a_model_where_one_weight_is_wanted_names_its_weights() -> None:
    """A model's name is no weight's, although it is known elsewhere."""
    expected = "^'large' is a model of several weights: name one of big, folder$"
    with pytest.raises(UnknownName, match=expected):
        parse(MANIFEST_TEXT).weight("large")


def test_a_folder_that_is_no_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given without a slash it is looked up as a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UnknownName, match=r"the folder of that name .* has no config\.json"):
        parse(MANIFEST_TEXT).model("mine")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("size_bytes = 13", 'size_bytes = "13"', r"weight 'little'.*\$\.file\[0\]\.size_bytes"),
        ("size_bytes = 13", "size_bytes = 0", r"weight 'little'.*must be positive"),
        ("size_bytes = 13", "size_byte = 13", r"weight 'little'.*size_byte"),
        ('licence = "MIT"', "", r"weight 'little'.*missing required field `licence`"),
        ('kind = "pypi"', 'kind = "ftp"', r"weight 'little'.*ftp"),
        ('sha256 = "', 'sha256 = "Z', r"weight 'little'.*64 lower-case hex"),
        ('name = "little"', "", r"weight number 1"),
        ('name = "little.bin"', 'name = "../little.bin"', r"is not a plain file name"),
        ('file = "little.bin"', 'file = "other.bin"', r"weight 'little'.*exactly the files"),
        ("[[weight]]", "[weight]", r"\[weight\].*\[\[weight\]\]"),
        ("[[weight]]", "[[weights]]\n[[weight]]", r"unknown tables: weights"),
        ("[[weight]]", "[[weight]", r"is not TOML"),
    ],
)
def test_a_bad_entry_is_named(old: str, new: str, message: str) -> None:
    """Whatever is wrong with an entry, the error says which entry and what."""
    assert old in SMALL_TEXT
    with pytest.raises(ManifestError, match=message):
        parse(SMALL_TEXT.replace(old, new))


def test_parts_must_add_up() -> None:
    """Parts that miss bytes of their file are refused before anything is downloaded."""
    first = BIG_TEXT.index("[[weight.source.part]]")
    second = BIG_TEXT.index("[[weight.source.part]]", first + 1)
    with pytest.raises(ManifestError, match=r"weight 'big'.*add up to"):
        parse(BIG_TEXT[:first] + BIG_TEXT[second:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (model_text("m", "absent") + FOLDER_TEXT, r"model 'm'.*no known weight: 'absent'"),
        (model_text("m", "folder", "m") + FOLDER_TEXT, r"model 'm'.*fallback 'm'"),
        (model_text("folder", "folder") + FOLDER_TEXT, r"'folder': is defined 2 times"),
        (SMALL_TEXT + SMALL_TEXT, r"'little': is defined 2 times"),
    ],
)
def test_names_must_fit_together(text: str, message: str) -> None:
    """A model of unknown weights, a circular fallback or a name used twice is refused."""
    with pytest.raises(ManifestError, match=message):
        parse(text)


def test_an_unreadable_manifest_is_named(tmp_path: Path) -> None:
    """A missing file and one that is not UTF-8 are ManifestErrors with the path."""
    with pytest.raises(ManifestError, match=r"absent\.toml.*No such file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match=r"bad\.toml.*is not UTF-8"):
        load(tmp_path / "bad.toml")
