"""headstart.engine.asr.chosen: `--ears`, and what is said when it cannot be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.engine.asr import chosen
from headstart.engine.asr.choice import Demand
from headstart.engine.asr.chosen import candidates, load_best, load_recognizer
from headstart.engine.asr.chunk_timing import ChunkTimer
from headstart.engine.asr.errors import (
    BadRecognizer,
    EnglishOnly,
    NoSuchRecognizer,
    UnknownLanguage,
)
from headstart.engine.asr.named import find_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.weights import WeightsMissing, whispers
from tests.engine.asr.whisper_dirs import SPECIALS, Kind, write_tokenizer, write_whisper


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working directory too, and ~ is the home."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        find_recognizer(str(tmp_path / "mine"))
        == find_recognizer("mine")
        == find_recognizer("~/mine")
    )


@pytest.mark.weights
def test_weights_are_found_by_name(whisper_dir: Path) -> None:
    """The packaged recognisers can be named."""
    assert find_recognizer("whisper-tiny.en") == whisper_dir


@pytest.mark.parametrize("name", ["no-such-folder", "smollm2-135m"])
def test_neither_folder_nor_ears(name: str) -> None:
    """What may be named is listed; weights of another kind are no recogniser."""
    with pytest.raises(
        NoSuchRecognizer, match=f"--ears {name}: there is no such folder.*whisper-tiny"
    ):
        find_recognizer(name)


def test_a_good_directory_hears(tmp_path: Path) -> None:
    """In a language that it knows; one that it does not know is named."""
    write_whisper(tmp_path)
    assert "3 languages" in load_recognizer(tmp_path, "de").about
    with pytest.raises(UnknownLanguage, match="'fr'"):
        load_recognizer(tmp_path, "fr")


def test_english_only_refuses_other_languages(tmp_path: Path) -> None:
    """And says what can be done."""
    write_whisper(tmp_path, Kind(multilingual=False))
    assert "English only" in load_recognizer(tmp_path, "auto").about
    with pytest.raises(EnglishOnly, match="set ears_language to en, or choose a multilingual"):
        load_recognizer(tmp_path, "de")


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
    with pytest.raises(
        BadRecognizer, match=f"the ears in .* cannot be used: .*{cause}.*; --ears takes"
    ):
        load_recognizer(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says is part of the sentence."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "config.json")

    monkeypatch.setattr("headstart.engine.asr.chosen.load_checkpoint", refuse)
    with pytest.raises(BadRecognizer, match=r"config\.json: Permission denied"):
        load_recognizer(tmp_path)


TWO = Demand(sessions=2, chunk_ms=500)


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the weights that are in the cache; each is a folder of that name."""
    names = {"whisper-tiny.en", "whisper-base"}

    def locate(name: str) -> Path:
        if name not in names:
            raise WeightsMissing(name, tmp_path / name)
        return tmp_path / name

    monkeypatch.setattr(chosen, "locate", locate)
    return names


def _names(own: Path, language: str = "en") -> list[str]:
    return [path.name for path in candidates(own, language)]


def test_auto_tries_what_is_fetched_the_largest_first(tmp_path: Path, fetched: set[str]) -> None:
    """The model's own recogniser comes last."""
    assert _names(tmp_path / "whisper-tiny.en") == ["whisper-base", "whisper-tiny.en"]
    assert _names(tmp_path / "whisper-base") == ["whisper-base"]


def test_auto_says_how_to_get_better_ears(
    tmp_path: Path, fetched: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It fetches nothing by itself."""
    fetched.remove("whisper-base")
    with caplog.at_level(logging.INFO, "headstart.engine"):
        assert _names(tmp_path / "whisper-tiny.en") == ["whisper-tiny.en"]
    assert "whisper-base (150 MB) is not fetched" in caplog.text
    assert "headstart models fetch whisper-base" in caplog.text


@pytest.mark.parametrize("language", ["fr", "auto"])
def test_auto_takes_ears_that_know_the_language(
    tmp_path: Path, fetched: set[str], language: str
) -> None:
    """However slow they are. Where there are none, the model's own say what they lack."""
    assert _names(tmp_path / "whisper-tiny.en", language) == ["whisper-base"]
    fetched.remove("whisper-base")
    assert _names(tmp_path / "whisper-tiny.en", language) == ["whisper-tiny.en"]


def test_the_manifest_knows_who_hears_english_only() -> None:
    """By the sizes of their vocabularies they are told apart when they are loaded; the manifest
    says it before."""
    assert {weight.name: weight.english_only for weight in whispers()} == {
        "whisper-tiny.en": True,
        "whisper-base": False,
    }


def _scripted_timer(monkeypatch: pytest.MonkeyPatch, took_ms: float) -> None:
    monkeypatch.setattr(ChunkTimer, "median_ms", lambda self, limit_ms: took_ms)


def test_the_better_ears_are_loaded_where_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only once."""
    for name in ("better", "own"):
        write_whisper(tmp_path / name)
    _scripted_timer(monkeypatch, 60.0)
    monkeypatch.setattr(WhisperRecognizer, "load", None)
    best = load_best((tmp_path / "better", tmp_path / "own"), "de", TWO)
    assert best.directory.name == "better"
    assert best.reason.startswith("better takes 60 ms a chunk of at most 125 ms")
    assert "3 languages" in best.recognizer.about


def test_slow_ears_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the next, which is told why."""
    for name in ("better", "own"):
        write_whisper(tmp_path / name)
    _scripted_timer(monkeypatch, 300.0)
    best = load_best((tmp_path / "better", tmp_path / "own"), "de", TWO)
    assert best.directory.name == "own"
    assert best.reason.startswith("better takes 300 ms a chunk; at most 125 ms fit")


@pytest.mark.parametrize("spoil", [_lose_tokenizer, _cut_the_config])
def test_faulty_better_ears_do_not_stop_the_start(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
) -> None:
    """They are passed over, and what is wrong with them is said; faulty last ones are the end."""
    for name in ("better", "own"):
        write_whisper(tmp_path / name)
    spoil(tmp_path / "better")
    _scripted_timer(monkeypatch, 60.0)
    assert load_best((tmp_path / "better", tmp_path / "own"), "de", TWO).directory.name == "own"
    assert "the ears in" in caplog.text
    with pytest.raises(BadRecognizer):
        load_best((tmp_path / "better",), "de", TWO)
