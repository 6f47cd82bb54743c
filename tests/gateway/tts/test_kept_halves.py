"""gateway.tts.kept_halves: what was made once is loaded, and made again whenever it cannot be."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from headstart.engine.weights import ensure
from headstart.gateway.tts.kept_halves import (
    DRAFT,
    DRAFT_OLD_S,
    HALVES,
    VERSIONS_KEPT,
    KeptHalves,
    session,
)
from headstart.gateway.tts.vits import Vits, load_vits, read_vits


def model(factor: float) -> bytes:
    """An ONNX model that multiplies by `factor` twice, which an optimiser may make one."""
    value = helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["once"]),
        helper.make_node("Mul", ["once", "factor"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "twice", ends[:1], ends[1:], [value])
    opset = helper.make_opsetid("", 17)
    whole = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    return bytes(whole.SerializeToString())


MODELS = (model(3.0), model(5.0))


def results(halves: list[Any]) -> list[list[float]]:
    feed = {"x": np.array([1.0, 2.0], np.float32)}
    return [half.run(None, feed)[0].tolist() for half in halves]


WANTED = [[9.0, 18.0], [25.0, 50.0]]


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A voice's file; the cache is in `tmp_path` too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "voice.onnx"
    path.write_bytes(b"weights")
    return path


def kept(weights: Path) -> KeptHalves:
    return KeptHalves("voice", weights, Path(__file__))


def files(weights: Path) -> list[str]:
    return sorted(p.name for p in (weights.parent / "cache" / "headstart" / "gateway").iterdir())


def test_what_was_made_is_loaded(weights: Path) -> None:
    """By another process too: only the files are there. Nothing else is left."""
    assert kept(weights).load() is None
    assert results(kept(weights).make(MODELS)) == WANTED
    found = kept(weights).load()
    assert found is not None
    assert results(found) == WANTED
    assert len(files(weights)) == len(HALVES)


def cut(data: bytes) -> bytes:
    return data[:-20]


def flip(data: bytes) -> bytes:
    """One bit, which a runtime might not notice."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    ("half", "damage"), [("encoder", cut), ("decoder", cut), ("encoder", flip)]
)
def test_a_damaged_file_is_made_again(
    weights: Path, half: str, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in the log."""
    kept(weights).make(MODELS)
    (path,) = (weights.parent / "cache" / "headstart" / "gateway").glob(f"*-{half}-*.onnx")
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert kept(weights).load() is None
    assert "made again" in caplog.text
    kept(weights).make(MODELS)
    assert kept(weights).load() is not None
    assert len(files(weights)) == len(HALVES)


def version(weights: Path, number: int) -> KeptHalves:
    """Of the same name, and other weights."""
    os.utime(weights, ns=(number, number))
    return kept(weights)


def test_versions_share_a_folder(weights: Path) -> None:
    """Each finds its own files, and none removes what another has used lately."""
    for number in range(VERSIONS_KEPT):
        assert version(weights, number).load() is None
        assert results(version(weights, number).make(MODELS)) == WANTED
    for number in range(VERSIONS_KEPT):
        assert version(weights, number).load() is not None


def test_the_version_that_was_used_longest_ago_goes(weights: Path) -> None:
    """When one too many is made."""
    for number in range(VERSIONS_KEPT):
        version(weights, number).make(MODELS)
        for path in (weights.parent / "cache" / "headstart" / "gateway").iterdir():
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**12))
    assert version(weights, 0).load() is not None  # it was the oldest
    version(weights, VERSIONS_KEPT).make(MODELS)
    assert len(files(weights)) == VERSIONS_KEPT * len(HALVES)
    there = [version(weights, n).load() is not None for n in range(VERSIONS_KEPT + 1)]
    assert there == [True, False, *[True] * (VERSIONS_KEPT - 1)]


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")  # as `Path.home`


@pytest.mark.parametrize("why", ["not a folder", "cannot be looked at", "no home"])
def test_without_a_folder_it_is_made_each_time(
    weights: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    """A cache that cannot be used costs time only."""
    if why == "not a folder":
        monkeypatch.setenv("XDG_CACHE_HOME", str(weights))
    elif why == "cannot be looked at":  # a name too long: root could look into a closed folder
        monkeypatch.setenv("XDG_CACHE_HOME", str(weights.parent / ("x" * 300)))
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", no_home)
    with caplog.at_level(logging.WARNING):
        assert kept(weights).load() is None
        assert results(kept(weights).make(MODELS)) == WANTED
        assert kept(weights).load() is None
    assert "at each start" in caplog.text


def test_drafts_of_a_killed_process_are_removed(weights: Path) -> None:
    """Not those that another process may be at work on."""
    folder = weights.parent / "cache" / "headstart" / "gateway"
    for name in ("old", "new"):
        draft = folder / f"{DRAFT}{name}"
        draft.mkdir(parents=True)
        (draft / "encoder").write_bytes(b"half")
    long_ago_s = time.time() - 2 * DRAFT_OLD_S
    os.utime(folder / f"{DRAFT}old", (long_ago_s, long_ago_s))
    kept(weights).make(MODELS)
    assert [name for name in files(weights) if name.startswith(DRAFT)] == [f"{DRAFT}new"]


@pytest.mark.weights
def test_the_voice_has_the_same_sound(tmp_path: Path) -> None:
    """Sample for sample, with the same noise drawn."""
    voice = read_vits(ensure("joe"), seed=1.0)
    said = []
    for keep in (True, False):
        paths = [tmp_path / half for half in HALVES]
        models = (voice.encoder, voice.decoder)
        if keep:
            for half, path in zip(models, paths, strict=True):
                session(half, path)
            halves = [session(path) for path in paths]
        else:
            halves = [session(half) for half in models]
        speaker = Vits("joe", halves[0], halves[1], voice.config)
        said.append(np.concatenate(list(speaker.speak("The capital of France is Paris.", 1.0))))
    assert len(said[0]) > 20_000
    assert np.array_equal(said[0], said[1])


@pytest.mark.weights
def test_a_kept_voice_speaks(weights: Path) -> None:
    """The first time it is made, the second time loaded."""
    lengths = [sum(map(len, load_vits("joe", ensure("joe")).speak("Paris.", 1.0))) for _ in "12"]
    assert all(length > 5_000 for length in lengths)
    assert len(files(weights)) == len(HALVES)


def test_a_folder_that_may_only_be_read_serves(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a container's image: when a file was used cannot be noted, but it can be used."""
    kept(weights).make(MODELS)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    found = kept(weights).load()
    assert found is not None
    assert results(found) == WANTED
