"""`headstart replay FILE --serve`: the page over a recorded feed, to its own visitors only."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.headstart.recordings.files import talk, written

MESSAGES = talk(seconds=20)
STARTED_WITHIN_S = 60.0


@contextlib.contextmanager
def serving(path: Path, *arguments: str) -> Iterator[str]:
    """The page's address. Ctrl-C has to end it with 0."""
    argv = [sys.executable, "-m", "headstart", "replay", str(path), "--serve", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+", child.stdout.readline())
            assert found is not None
            yield found[0]
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=STARTED_WITHIN_S)
            assert child.returncode == 0, errors
            assert "Traceback" not in errors
        finally:
            child.kill()


def feed(url: str, **headers: str) -> ClientConnection:
    return connect(
        url.replace("http", "ws").replace("/dashboard/", "/v1/dashboard"),
        additional_headers=headers,
        open_timeout=STARTED_WITHIN_S,
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    chunks = [dict(m) for m in MESSAGES]
    chunks.insert(
        5, {"type": "chunk", "seq": 1, "at_ms": 1000.0, "session": "s", "duration_ms": 500.0}
    )
    path = written(tmp_path_factory.mktemp("serve") / "a.gz", chunks)
    with serving(path, "--fast") as started:
        yield started


def test_the_page_and_the_feed_are_served(url: str) -> None:
    """Every watcher gets the very lines from the start, chunks if it asks for them; then the
    connection stays open."""
    with urllib.request.urlopen(url) as page:
        assert b"dashboard" in page.read()
        assert "default-src 'none'" in page.headers["content-security-policy"]
    for _ in range(2):
        with feed(url) as socket:
            came = [json.loads(socket.recv(STARTED_WITHIN_S)) for _ in MESSAGES]
            assert came == MESSAGES
            with pytest.raises(TimeoutError):
                socket.recv(0.2)


def test_a_watcher_may_say_one_thing(url: str) -> None:
    """Anything else closes with 1008."""
    for said in ("hello", '{"type":"other"}', "[]", b"\x00"):
        with feed(url) as socket:
            socket.send(said)
            with pytest.raises(ConnectionClosed):
                list(socket)
            assert socket.close_code == 1008


def test_pages_of_other_sites_are_kept_out(url: str) -> None:
    """By origin, and by a foreign name that points here: the file may hold what people said."""
    with pytest.raises(InvalidStatus) as refused, feed(url, Origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    renamed = urllib.request.Request(url, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(renamed)
    assert error.value.code == 421


def test_a_bad_file_is_said_before_anything_is_served(tmp_path: Path) -> None:
    """With the exit code of bad input."""
    path = written(tmp_path / "a.gz", [{**MESSAGES[0], "version": 2}])
    argv = [sys.executable, "-m", "headstart", "replay", str(path), "--serve"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "format version 2" in done.stderr
