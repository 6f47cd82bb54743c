"""The chart library: from where it is fetched, that only its own bytes count, and that set-up
goes on without it."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headstart import web_assets
from headstart.web_assets import Asset, AssetError, ensure, fetch, is_there


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FILES = {"package/dist/a.js": b"var a;", "package/LICENSE": b"MIT", "package/../../evil": b"x"}
TARBALL = packed(FILES)
ASSET = Asset(
    name="thing",
    version="1.2.3",
    sha256=sha256(TARBALL),
    size_bytes=len(TARBALL),
    licence="MIT",
    members={name: sha256(FILES[name]) for name in ("package/dist/a.js", "package/LICENSE")},
)


def test_only_the_named_members_are_unpacked(tmp_path: Path) -> None:
    """By their file names, into the asset's own folder; a path that climbs out is not looked at."""
    folder = ensure(ASSET, tmp_path / "vendor", lambda _: TARBALL)
    assert sorted(p.name for p in folder.iterdir()) == ["LICENSE", "a.js"]
    assert [p.name for p in (tmp_path / "vendor").iterdir()] == ["thing"]
    assert not (tmp_path / "evil").exists()


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    """Nor is what somebody changed left as it is."""

    def never(_: Asset) -> bytes:
        raise AssertionError("fetched again")

    folder = ensure(ASSET, tmp_path, lambda _: TARBALL)
    assert ensure(ASSET, tmp_path, never) == folder
    (folder / "a.js").write_bytes(b"var b;")
    assert not is_there(ASSET, tmp_path)
    ensure(ASSET, tmp_path, lambda _: TARBALL)
    assert (folder / "a.js").read_bytes() == b"var a;"


@pytest.mark.parametrize("data", [b"", b"<html>", TARBALL[:-1], packed({"package/LICENSE": b"x"})])
def test_other_bytes_are_refused(tmp_path: Path, data: bytes) -> None:
    """The error says what was expected and what came, and nothing is kept."""
    with pytest.raises(AssetError, match=f"expected SHA-256 {ASSET.sha256}, got {sha256(data)}"):
        ensure(ASSET, tmp_path / "vendor", lambda _: data)
    assert not (tmp_path / "vendor").exists()


class _Registry(BaseHTTPRequestHandler):
    reply = TARBALL
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if "thing" in self.path else 404)
        self.end_headers()
        self.wfile.write(self.reply)

    def log_message(self, *_: object) -> None:
        """Not into the tests' output."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry on this machine, on a machine without npm and without a package index, so that
    no wheel's npm is downloaded (60 MB) to fail at the same registry."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in web_assets.REGISTRY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    _Registry.reply, _Registry.asked = TARBALL, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/npm/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("variable", web_assets.REGISTRY_VARIABLES)
def test_a_registry_named_in_the_environment_is_asked(
    registry: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without npm, over HTTP(S). Where none is named, none is asked, and a wheel's npm is next."""
    with pytest.raises(AssetError, match=r"no npm here; no registry is named .*; pip download"):
        fetch(ASSET)
    monkeypatch.setenv(variable, registry)
    assert fetch(ASSET) == TARBALL
    assert _Registry.asked == ["/npm/thing/-/thing-1.2.3.tgz"]


def test_a_registry_that_sends_too_much_is_cut_off(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the size written down."""
    monkeypatch.setenv("HEADSTART_NPM_REGISTRY", registry)
    _Registry.reply = bytes(len(TARBALL) + 1)
    with pytest.raises(AssetError, match=f"more than the {len(TARBALL)} bytes"):
        fetch(ASSET)


def test_a_registry_that_is_away_is_named_as_the_reason(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead address, or a page that is none of theirs, is an AssetError like the rest."""
    monkeypatch.setenv("HEADSTART_NPM_REGISTRY", "http://127.0.0.1:1/")
    with pytest.raises(AssetError, match="the registry did not deliver it"):
        fetch(ASSET)
    monkeypatch.setenv("HEADSTART_NPM_REGISTRY", "not a url")
    with pytest.raises(AssetError, match="the registry did not deliver it"):
        fetch(ASSET)


def test_a_tarball_brought_by_hand_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m headstart.web_assets FILE`; a wrong one fails, with exit code 1 and a reason."""
    path = tmp_path / "thing.tgz"
    path.write_bytes(b"other")
    monkeypatch.setattr(web_assets, "is_there", lambda *_: False)
    assert web_assets.main([str(path)]) == 1
    assert "expected SHA-256" in capsys.readouterr().err
    assert web_assets.main([str(tmp_path / "absent.tgz")]) == 1
    assert "plainer charts" in capsys.readouterr().err
