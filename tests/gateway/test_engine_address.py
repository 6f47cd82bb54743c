import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import zmq

from headstart.engine import api
from headstart.gateway.engine_address import Address
from headstart.gateway.engine_link import EngineLink, LinkObserver, LinkState, private_endpoint
from headstart.gateway.runtime.child_process import ChildProcess, Pipes
from tests.gateway.shell_fakes import fake_engine_argv, until


def file_of(endpoint: str) -> Path:
    return Path(endpoint.removeprefix("ipc://"))


@contextlib.asynccontextmanager
async def kept_alive() -> AsyncIterator[tuple[EngineLink, ChildProcess]]:
    """A link and its engine, a real process, as `headstart serve` runs them."""
    with private_endpoint() as endpoint:
        link = EngineLink(endpoint)

        @contextlib.contextmanager
        def connect() -> Iterator[Pipes]:
            link.check_address()
            yield Pipes()

        argv = fake_engine_argv(link.endpoint)
        supervisor = ChildProcess("engine", argv, connect=connect, on_exit=link.lost)

        class Healthy(LinkObserver):
            def engine_ready(self, ready: api.Ready) -> None:
                supervisor.healthy()

        link.observer = Healthy()
        link.start()
        running = asyncio.create_task(supervisor.run())
        try:
            await until(lambda: link.is_ready)
            yield link, supervisor
        finally:
            await supervisor.stop()
            await asyncio.wait({running})
            link.close()


def remove_file(path: Path) -> None:
    path.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("remove", [remove_file, remove_folder])
async def test_an_engine_comes_back_after_its_address_was_removed(
    remove: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A cleaner of temporary folders takes the socket's file, or its folder. The engine, which is
    connected, works on; when it is killed, the next one finds the gateway. The log says why."""
    async with kept_alive() as (link, supervisor):
        assert link.ready is not None
        first = link.ready.incarnation
        remove(file_of(link.endpoint))
        assert supervisor.pid is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        await until(lambda: link.is_ready and link.ready and link.ready.incarnation != first)
        assert file_of(link.endpoint).parent.stat().st_mode & 0o777 == 0o700
    assert "was removed, by a cleaner perhaps: it was made again" in caplog.text


async def test_the_engine_that_is_connected_notices_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file is made again while it works: it is the same engine, and still answers."""
    async with kept_alive() as (link, _):
        assert link.ready is not None
        before, losses = link.ready.incarnation, link.counters.losses
        path = file_of(link.endpoint)
        for _ in range(3):
            path.unlink()
            link.check_address()
            assert path.is_socket()
        events = link.counters.events
        await until(lambda: link.counters.events > events + 1)  # it answers pings
        assert (link.ready.incarnation, link.counters.losses) == (before, losses)
        assert link.is_ready


async def test_why_no_engine_can_come_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else has put a folder in the place of ours, we do not bind in it; the reason
    that health and status give names it, and not only how the engine ended."""
    folder = tmp_path / "ours"
    folder.mkdir(mode=0o700)
    link = EngineLink(f"ipc://{folder}/engine.sock")
    link.start()
    try:
        shutil.rmtree(folder)
        folder.mkdir()
        folder.chmod(0o777)
        for _ in range(3):
            link.check_address()
        link.lost("it ended: killed by SIGKILL")
        assert link.state is LinkState.LOST
        assert link.reason.startswith("it ended: killed by SIGKILL; ")
        assert "is not ours alone" in link.reason
        assert caplog.text.count("is not ours alone") == 1  # said once, not every second
        folder.chmod(0o700)
        link.check_address()
        assert (folder / "engine.sock").is_socket()
        assert link.reason == "it ended: killed by SIGKILL"
    finally:
        link.close()


@contextlib.contextmanager
def bound(endpoint: str) -> Iterator[Address]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        yield Address(socket, endpoint)


def test_a_file_that_another_process_has_taken_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two gateways at one address do not take it from each other every second; once the other one
    has ended, it is ours again."""
    endpoint = f"ipc://{tmp_path}/engine.sock"
    with bound(endpoint) as first:
        with bound(endpoint) as second:
            assert not first.check()
            assert "another process listens" in first.problem
            assert not second.check()
            assert second.problem == ""
            second.remove()
        assert first.check()
        assert first.problem == ""


def test_what_has_no_file_is_bound_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """TCP on a free port: nothing to look after."""
    caplog.set_level(logging.INFO)
    with bound("tcp://127.0.0.1:*") as address:
        assert address.endpoint.startswith("tcp://127.0.0.1:")
        assert not address.endpoint.endswith("*")
        assert not address.check()
        address.remove()
    assert caplog.text == ""


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Neither the file nor those it was bound under."""
    with bound(f"ipc://{tmp_path}/engine.sock") as address:
        (tmp_path / "engine.sock").unlink()
        assert address.check()
        address.forget_old()
        assert [path.name for path in tmp_path.iterdir()] == ["engine.sock"]
        address.remove()
    assert list(tmp_path.iterdir()) == []
