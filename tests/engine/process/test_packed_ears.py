"""A Whisper whose packed weights and silence come from disk hears the same, bit for bit."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headstart.benchmarks.inputs.recordings import load_f32
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper import prepared
from headstart.engine.asr.whisper.packed import PackedLinear
from headstart.engine.checkpoints.packed_file import PackedWriter
from headstart.engine.process import packed_ears
from headstart.engine.process.packed_ears import load_packed_recognizer, recognizer_key
from headstart.engine.weights import packed_store
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels import native
from tests.engine.asr.whisper_dirs import Kind, write_whisper
from tests.engine.process.damage import DAMAGES

ROOM_BYTES = 1 << 30
CLIP = Path(__file__).parents[3] / "headstart" / "clips" / "capital.wav"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The machine is shared: threads that wait for one another wait long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Whisper is too small to be kept, and the disk may be full."""
    monkeypatch.setattr(packed_ears, "LEAST_BYTES", 0)
    monkeypatch.setattr(packed_store, "DISK_RESERVE_BYTES", 0)


@pytest.fixture
def ears(tmp_path: Path) -> Path:
    write_whisper(tmp_path / "ears")
    return tmp_path / "ears"


@pytest.fixture
def store(tmp_path: Path) -> PackedStore:
    return PackedStore(tmp_path / "home", ROOM_BYTES)


def files(store: PackedStore) -> list[Path]:
    return sorted(store.folder.glob("*.panels"))


def bits(recognizer: WhisperRecognizer) -> list[Tensor]:
    """All that may come from a file, and what is computed with it."""
    encoder, decoder = recognizer._encoder, recognizer._decoder
    found = [
        part.weight.panels
        for whole in (encoder, decoder)
        for part in whole.modules()
        if isinstance(part, PackedLinear)
    ]
    words = torch.arange(20)
    found.append(decoder.vocabulary.embed(words))
    found.append(decoder.vocabulary.logits(decoder.vocabulary.embed(words)))
    silence = recognizer._silence
    found += [silence._encoded.keys, silence._encoded.values]
    found += [silence._heard.keys, silence._heard.values]
    noise = np.random.default_rng(0).normal(scale=0.1, size=64_000).astype(np.float32)
    utterance = recognizer.open()
    for chunk in np.split(noise, 4):
        recognizer.recognize(utterance, chunk)
    room = utterance.frozen
    assert room.positions > 0
    return [*found, room.keys, room.values]


def same(one: WhisperRecognizer, other: WhisperRecognizer) -> bool:
    pairs = zip(bits(one), bits(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def anew(folder: Path) -> WhisperRecognizer:
    """As without any file."""
    return load_packed_recognizer(folder, "en", PackedStore(folder, 0))


@pytest.mark.parametrize("kind", [Kind(), Kind(tied=False), Kind(multilingual=False)])
def test_the_second_start_maps_what_the_first_one_made(
    tmp_path: Path, store: PackedStore, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing packed and no silence encoded; what is heard has the same bits."""
    write_whisper(tmp_path / "ears", kind)
    folder = tmp_path / "ears"
    wanted = anew(folder)
    assert files(store) == []
    assert same(load_packed_recognizer(folder, "en", store), wanted)
    (made,) = files(store)
    monkeypatch.setattr(prepared, "pack_q8_0", None)
    monkeypatch.setattr("headstart.engine.asr.silence._padded", None)
    monkeypatch.setattr("headstart.engine.asr.silence.EncodedSound", None)
    mapped = load_packed_recognizer(folder, "en", store)
    monkeypatch.undo()
    assert same(mapped, wanted)
    assert files(store) == [made]


@pytest.mark.weights
def test_the_packaged_one_hears_the_same_words(whisper_dir: Path, store: PackedStore) -> None:
    """From the file, with the bits of packing anew."""
    sound = load_f32(CLIP, 16_000)
    load_packed_recognizer(whisper_dir, "en", store)
    mapped, wanted = load_packed_recognizer(whisper_dir, "en", store), anew(whisper_dir)
    assert same(mapped, wanted)
    heard = []
    for recognizer in (mapped, wanted):
        utterance = recognizer.open()
        told = [recognizer.recognize(utterance, part) for part in np.array_split(sound, 5)]
        heard.append([(each.committed, each.tentative) for each in told])
    assert heard[0] == heard[1]
    assert "capital" in "".join(heard[0][-1])


def test_other_weights_in_the_same_place_are_made_anew(
    tmp_path: Path, ears: Path, store: PackedStore
) -> None:
    """Of the same size and date, as a careless copy leaves them."""
    load_packed_recognizer(ears, "en", store)
    path = ears / "model.safetensors"
    date = path.stat()
    whole = bytearray(path.read_bytes())
    floats = np.frombuffer(whole, np.float32, offset=len(whole) % 4 + len(whole) // 8 * 4)
    floats *= 1.5
    path.write_bytes(whole)
    os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))
    assert path.stat().st_size == date.st_size
    assert same(load_packed_recognizer(ears, "en", store), anew(ears))
    assert len(files(store)) == 2


def test_the_key_follows_code_kernels_and_libraries(
    ears: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the bytes depend on."""
    key = recognizer_key(ears)
    assert recognizer_key(ears) == key
    sources = packed_ears._sources()
    told = {path.parent.name for path in sources}
    assert {"asr", "whisper", "checkpoints", "qlinear", "whisper_layers", "conv1d"} <= told
    assert "gpu" not in told
    changed = tmp_path / sources[0].name
    changed.write_bytes(sources[0].read_bytes() + b"\n")
    keys = {key}
    for name, value in (
        ("_sources", lambda: [changed, *sources[1:]]),
        ("version", lambda name: "0.0"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(packed_ears, name, value)
            keys.add(recognizer_key(ears))
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
        keys.add(recognizer_key(ears))
    with monkeypatch.context() as patch:
        patch.setattr(native, "library_path", lambda *of: Path("other.so"))
        keys.add(recognizer_key(ears))
    config = json.loads((ears / "config.json").read_text())
    (ears / "config.json").write_text(json.dumps(config | {"something": 1}))
    keys.add(recognizer_key(ears))
    assert len(keys) == 6


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(
    ears: Path,
    store: PackedStore,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says so, hears the same, and the next start is a fast one again."""
    wanted = load_packed_recognizer(ears, "en", store)
    (made,) = files(store)
    damage(made)
    with caplog.at_level(logging.WARNING):
        assert same(load_packed_recognizer(ears, "en", store), wanted)
    assert "the packed recogniser cannot be used" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert same(load_packed_recognizer(ears, "en", store), wanted)
    assert caplog.text == ""


def test_a_disk_that_fills_up_midway_costs_time_only(
    ears: Path,
    store: PackedStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is left on it, and the recogniser hears."""

    def refuse(self: PackedWriter, name: str, tensor: Tensor) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PackedWriter, "add_tensor", refuse)
    with caplog.at_level(logging.WARNING):
        assert same(load_packed_recognizer(ears, "en", store), anew(ears))
    assert "No space left on device" in caplog.text
    assert [path.name for path in store.folder.iterdir()] == [".lock"]


def test_a_small_bound_costs_time_only(
    ears: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is larger than the folder may be is made in memory."""
    store = PackedStore(tmp_path / "home", 1000)
    with caplog.at_level(logging.WARNING):
        assert same(load_packed_recognizer(ears, "en", store), anew(ears))
    assert "the recogniser is packed anew at each start" in caplog.text
    assert files(store) == []


def test_a_small_whisper_is_not_kept(
    ears: Path, store: PackedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making it takes less time than finding a file."""
    monkeypatch.setattr(packed_ears, "LEAST_BYTES", 1 << 30)
    load_packed_recognizer(ears, "en", store)
    assert files(store) == []


def test_the_reference_keeps_no_file(
    ears: Path, store: PackedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sums depend on torch's threads."""
    monkeypatch.setattr(native, "default_backend", lambda: "reference")
    load_packed_recognizer(ears, "en", store)
    assert files(store) == []
