"""headstart.engine.asr.chosen: `--ears`, and what is said when it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.engine.asr.chosen import find_ears, load_ears
from headstart.engine.asr.errors import BadEars, EnglishOnly, NoSuchEars, UnknownLanguage
from tests.engine.asr.whisper_dirs import SPECIALS, Kind, write_tokenizer, write_whisper


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working directory too, and ~ is the home."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_ears(str(tmp_path / "mine")) == find_ears("mine") == find_ears("~/mine")


@pytest.mark.weights
def test_weights_are_found_by_name(whisper_dir: Path) -> None:
    """The packaged ears can be named."""
    assert find_ears("whisper-tiny.en") == whisper_dir


@pytest.mark.parametrize("name", ["no-such-folder", "smollm2-135m"])
def test_neither_folder_nor_ears(name: str) -> None:
    """What may be named is listed; weights of another kind are no ears."""
    with pytest.raises(NoSuchEars, match=f"--ears {name}: there is no such folder.*whisper-tiny"):
        find_ears(name)


def test_a_good_directory_hears(tmp_path: Path) -> None:
    """In a language that it knows; one that it does not know is named."""
    write_whisper(tmp_path)
    assert "3 languages" in load_ears(tmp_path, "de").about
    with pytest.raises(UnknownLanguage, match="'fr'"):
        load_ears(tmp_path, "fr")


def test_english_only_refuses_other_languages(tmp_path: Path) -> None:
    """And says what can be done."""
    write_whisper(tmp_path, Kind(multilingual=False))
    assert "English only" in load_ears(tmp_path, "auto").about
    with pytest.raises(EnglishOnly, match="set ears_language to en, or choose a multilingual"):
        load_ears(tmp_path, "de")


def _lose_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _lose_a_shard(folder: Path) -> None:
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def _take_another_tokenizer(folder: Path) -> None:
    write_tokenizer(folder / "tokenizer.json", ("<|an extra one|>", *SPECIALS[:-1]))


def _cut_the_config(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text[: len(text) // 2])


def _put_a_folder_for_a_file(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (_lose_tokenizer, "Whisper directory: expected tokenizer.json, got no such file"),
        (_lose_a_shard, "weight_map: expected model-.* beside it, got no such file"),
        (_take_another_tokenizer, "expected .*, as in the model, got"),
        (_cut_the_config, "config.json: content: expected JSON"),
        (_put_a_folder_for_a_file, "expected config.json, got no such file"),
    ],
)
def test_a_faulty_directory_is_one_sentence(
    tmp_path: Path, spoil: Callable[[Path], None], cause: str
) -> None:
    """Where it is, what was expected and what came, and what a folder must hold."""
    write_whisper(tmp_path, Kind(sharded=True))
    spoil(tmp_path)
    with pytest.raises(BadEars, match=f"the ears in .* cannot be used: .*{cause}.*; --ears takes"):
        load_ears(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says is part of the sentence."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "config.json")

    monkeypatch.setattr("headstart.engine.asr.chosen.WhisperRecognizer.load", refuse)
    with pytest.raises(BadEars, match=r"config\.json: Permission denied"):
        load_ears(tmp_path)
