import io
import tarfile
from pathlib import Path

import pytest

from headstart.benchmarks.inputs.source_archive import download_source
from headstart.engine.weights.errors import SourceFailed


def write_source(folder: Path, ran: Path) -> Path:
    """A source archive that pip may find; its setup code would leave `ran`."""
    folder.mkdir()
    path = folder / "some_photos-1.5.tar.gz"
    setup = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n".encode()
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("some_photos-1.5/setup.py")
        info.size = len(setup)
        archive.addfile(info, io.BytesIO(setup))
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that the user's pip is configured to look at."""
    archive = write_source(tmp_path / "index", tmp_path / "ran")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    return archive


def test_an_archive_comes_from_where_pip_is_told_to_look(index: Path, tmp_path: Path) -> None:
    """The file as it is; none of its code has run."""
    got = download_source("some-photos", "1.5", tmp_path / "got")
    assert got.name == index.name
    assert got.read_bytes() == index.read_bytes()
    assert not (tmp_path / "ran").exists()


def test_what_no_index_has_is_said(index: Path, tmp_path: Path) -> None:
    """By name, with the version."""
    with pytest.raises(SourceFailed, match=r"some-photos==2.0: .*no index lists"):
        download_source("some-photos", "2.0", tmp_path / "got")
