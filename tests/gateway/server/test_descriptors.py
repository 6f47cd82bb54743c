"""What happens where there are few file descriptors, on a real server among others."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets import Response
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from headstart.gateway.errors import ConfigError
from headstart.gateway.server import descriptors
from headstart.gateway.server.descriptors import (
    PER_PENDING,
    RESERVE,
    Descriptors,
    open_count,
    prepare,
    share,
)
from tests.gateway.server.running import Server, next_event, server

LIMIT = 64
ANSWER_WAIT_S = 20.0


@contextlib.contextmanager
def limited(soft: int, hard: int) -> Iterator[None]:
    """This process's limit, for itself and for what it starts; the hard one is only pretended."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    real = resource.setrlimit

    def checked(which: int, limits: tuple[int, int]) -> None:
        if limits[0] > hard:
            raise ValueError("not allowed to raise maximum limit")
        real(which, (limits[0], before[1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        patch.setattr(resource, "setrlimit", checked)
        try:
            yield
        finally:
            real(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with nine open."""
    monkeypatch.setattr(descriptors, "open_count", lambda: 9)


def test_they_are_counted() -> None:
    """One more for each file that is opened."""
    before = open_count()
    with open("/dev/null"):
        assert open_count() == before + 1
    assert open_count() == before


def test_the_soft_limit_is_raised_where_that_is_allowed(
    few: None, caplog: pytest.LogCaptureFixture
) -> None:
    """To what the sessions may need and not further, and the log says so."""
    caplog.set_level("INFO")
    with limited(256, hard=100_000):
        found = prepare(max_sessions=64, pending_max=100)
    assert found.sessions_max >= 64
    assert found.pending_max == 100
    assert 256 < found.limit < 1000
    assert f"from 256 to {found.limit}" in caplog.text


def test_where_it_cannot_be_raised_there_are_fewer_sessions(
    few: None, caplog: pytest.LogCaptureFixture
) -> None:
    """As many as there is room for beside the pending and the reserve, and the log says so."""
    with limited(LIMIT, hard=LIMIT):
        found = prepare(max_sessions=64)
    assert 0 < found.sessions_max < 20
    assert f"64 file descriptors are enough for {found.sessions_max} sessions" in caplog.text
    with limited(40, hard=40), pytest.raises(ConfigError, match="40 file descriptors are too few"):
        prepare(max_sessions=64)


def test_nothing_is_shared_out_twice() -> None:
    """The shares never exceed the total, and pending connections always get a share."""
    for left in range(2000):
        shared = share(left, 256, 64)
        if shared is None:
            assert left <= PER_PENDING * 4
            continue
        pending, sessions = shared
        assert 4 <= pending <= 256
        assert PER_PENDING * pending + sessions <= left
    assert shared == (256, 1999 - PER_PENDING * 256)


def test_a_call_needs_more_than_a_socket() -> None:
    """What is open now decides, with places for the pending that are still to come."""
    open_now, pending = 50, 2
    room = Descriptors(100, 10, 40, pending=lambda: pending, count=lambda: open_now)
    left = 100 - 50 - RESERVE - PER_PENDING * 8
    assert room.has_room(0, left)
    assert not room.has_room(0, left + 1)
    assert not room.has_room(40)
    open_now = 100
    assert not room.has_room(0)


@contextlib.contextmanager
def server_with_few() -> Iterator[Server]:
    """A real one of `LIMIT` descriptors, which it cannot raise."""
    ulimit = f'ulimit -n {LIMIT}; exec {sys.executable} "$@"'
    popen: Any = subprocess.Popen
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            subprocess,
            "Popen",
            lambda argv, **options: popen(["sh", "-c", ulimit, *argv], **options),
        )
        with server() as running:
            patch.undo()
            yield running


def test_who_finds_no_descriptor_is_refused_with_the_reason() -> None:
    """Never left to wait: session after session is begun, and then each one more gets a 503 that
    says why; health and status are told; a place that is left can be had."""
    with server_with_few() as running, contextlib.ExitStack() as stack:
        running.until_ready()
        url = running.url.replace("http", "ws") + "/v1/realtime"
        sessions: list[Connection] = []
        refusals: list[Response] = []
        for _ in range(LIMIT):
            try:
                socket = stack.enter_context(connect(url, open_timeout=ANSWER_WAIT_S))
            except InvalidStatus as error:
                refusals.append(error.response)
                continue
            next_event(socket, "session.created")
            sessions.append(socket)
        assert len(sessions) >= 10
        assert len(refusals) == LIMIT - len(sessions)
        for response in refusals:
            assert response.status_code == 503
            assert b"no file descriptors left" in (response.body or b"")
        assert httpx.get(f"{running.url}/healthz", timeout=ANSWER_WAIT_S).status_code == 200
        assert running.status()["sessions"]["now"] == len(sessions)
        sessions.pop().close()
        with connect(url, open_timeout=ANSWER_WAIT_S) as socket:
            next_event(socket, "session.created")
