"""`headstart top` in a real terminal, over a real WebSocket."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headstart.top.source import BACKOFF_S
from tests.headstart.recordings.files import talk, written
from tests.headstart.top.terminal import WITHIN_S, top
from tests.web_demo.dashboard.fake_feed import FakeFeed

TILES = (
    "Sessions",
    "First token",
    "First sound",
    "In budget",
    "Headroom",
    "KV cache",
    "RTP loss",
    "Errors/min",
)


def address(feed: FakeFeed) -> str:
    return f"http://127.0.0.1:{feed.port}"


def once(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headstart", "top", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_strip_and_the_sessions_fit_a_small_terminal(feed: FakeFeed) -> None:
    """80 by 24: eight tiles, every session, keys; q ends it with 0 and the terminal as it was."""
    with top(address(feed)) as terminal:
        before = terminal.attributes()
        terminal.until("live")
        feed.run(30)
        frame = terminal.until(
            *TILES, *(s[-6:] for s in feed.server.sessions), "q: quit", "engine ready"
        )
        assert len(frame) == 24
        assert max(map(len, frame)) <= 80
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.attributes() == before
    assert terminal.text.rindex("\x1b[?1049l") > terminal.text.rindex("\x1b[?1049h")
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_ctrl_c_ends_it_cleanly(feed: FakeFeed) -> None:
    """As a key in the terminal: no traceback, the terminal as it was, exit code 0."""
    with top(address(feed)) as terminal:
        before = terminal.attributes()
        terminal.until("live")
        terminal.press("\x03")
        assert terminal.ended() == 0
        assert terminal.attributes() == before
    assert "Traceback" not in terminal.text


def test_it_follows_the_size_of_the_terminal(feed: FakeFeed) -> None:
    """Larger: tiles in one row, tokens by modality; tiny: what fits, and no exception."""
    with top(address(feed)) as terminal:
        terminal.until("live")
        feed.run(5)
        terminal.until("page" if len(feed.server.sessions) > 13 else "engine ready")
        terminal.resize(160, 40)
        frame = terminal.until("text / audio / image / said")
        assert len(frame) == 40
        assert all(name in frame[1] for name in TILES)
        terminal.resize(30, 8)
        terminal.until("Sessions")
        terminal.resize(80, 24)
        assert len(terminal.until(*TILES)) == 24
        terminal.press("q")
        assert terminal.ended() == 0


def test_it_comes_back_when_the_feed_breaks(feed: FakeFeed) -> None:
    """Says so meanwhile; the ring brings what was missed, and a new run starts anew."""
    with top(address(feed)) as terminal:
        terminal.until("live")
        feed.run(3)
        feed.is_open = False
        feed.status = 503
        feed.cut()
        terminal.until("answered 503")
        assert any("trying again in" in line for line in terminal.frame())
        feed.is_open = True
        terminal.until("· live")
        feed.run(2)
        terminal.until("engine ready")
        assert feed.connections >= 3
        terminal.press("q")
        assert terminal.ended() == 0
    assert list(BACKOFF_S) == sorted(BACKOFF_S)


def test_pages_turn_with_the_space_bar(feed: FakeFeed) -> None:
    """More sessions than lines: all of them can be seen."""
    feed.server = type(feed.server)(sessions=30)
    sessions = [name[-6:] for name in feed.server.sessions]
    with top(address(feed)) as terminal:
        terminal.until("live")
        feed.run(1)
        terminal.until("page 1 of 3", sessions[0])
        terminal.press(" ")
        terminal.until("page 2 of 3")
        terminal.press(" ")
        terminal.until("page 3 of 3", sessions[-1])
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_recording_takes_a_servers_place(tmp_path: Path) -> None:
    """In virtual time; when it is over, the last look stays until q."""
    path = written(tmp_path / "a.gz", talk(seconds=30))
    with top(str(path), "--speed", "100") as terminal:
        terminal.until("the recording is over", *TILES)
        terminal.press("q")
        assert terminal.ended() == 0


def test_once_is_plain_text(feed: FakeFeed, tmp_path: Path) -> None:
    """For pipes, of a server and of a file; without the option, too, where there is no terminal."""
    feed.server.turn()
    path = written(tmp_path / "a.gz", talk(seconds=30))
    for arguments in ((str(path), "--once"), (str(path),)):
        text = once(*arguments).stdout
        assert all(name in text for name in TILES)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80
    argv = [sys.executable, "-m", "headstart", "top", address(feed), "--once"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while feed.connections == 0 or not feed._watchers:
            assert child.poll() is None
        feed.run(2)
        out, errors = child.communicate(timeout=WITHIN_S)
    assert (child.returncode, errors) == (0, "")
    assert feed.server.sessions[0][-6:] in out


def test_what_is_wrong_is_said_with_code_2(feed: FakeFeed, tmp_path: Path) -> None:
    """No server, no dashboard, no or a wrong key, no address, no file."""
    feed.key = "the-right-key-of-this"
    assert "--key or in HEADSTART_CLIENT_KEY" in once(address(feed), code=2).stderr
    assert "--key" in once(address(feed), "--key", "a-wrong-one", code=2).stderr
    feed.is_open, feed.status = False, 404
    assert "no dashboard" in once(address(feed), code=2).stderr
    assert "nobody answers" in once("127.0.0.1:9", code=2).stderr
    assert "no file of that name" in once("gone.txt", code=2).stderr
    assert "expected http://HOST:PORT" in once("ftp://x", code=2).stderr
    assert "cannot be read" in once(str(tmp_path / "gone.jsonl.gz"), code=2).stderr


def test_the_right_key_opens_the_feed(feed: FakeFeed) -> None:
    """As a bearer token, as `headstart talk` sends it."""
    feed.key = "the-right-key-of-this"
    with top(address(feed), "--key", feed.key) as terminal:
        terminal.until("· live")
        terminal.press("q")
        assert terminal.ended() == 0
