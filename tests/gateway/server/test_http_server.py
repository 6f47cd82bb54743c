"""The end of the server, whatever its connections are at."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from headstart.gateway.connection.pending import PendingLimits
from tests.gateway.auth.test_middleware import certificate  # noqa: F401  # a fixture
from tests.gateway.connection.test_pending import KEY, held, keyed
from tests.gateway.server.running import Server, ask, next_event, server
from tests.gateway.shapes import SHAPES

END_WAIT_S = 30.0
BEARER = {"Authorization": f"Bearer {KEY}"}
PROBLEMS = ("Traceback", " ERROR ", " CRITICAL ", "never retrieved", "was destroyed")


@pytest.mark.parametrize("name", SHAPES)
async def test_the_server_ends_over_each(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an exception, and without an error in the log."""
    holding = contextlib.AsyncExitStack()
    async with holding, keyed(PendingLimits(), tmp_path) as running:
        await holding.enter_async_context(held(running, SHAPES[name], 3))
        await asyncio.sleep(0.05)
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


@contextlib.contextmanager
def strangers(running: Server) -> Iterator[None]:
    """Two connections of each shape, on plain sockets."""
    host, port = running.url.partition("://")[2].split(":")
    with contextlib.ExitStack() as stack:
        for shape in SHAPES.values():
            for _ in range(2):
                held_open = stack.enter_context(socket.create_connection((host, int(port))))
                held_open.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    held_open.send(shape.first + shape.drip[: len(shape.drip) // 2])
        yield


def ended(running: Server) -> tuple[int, list[str]]:
    """The exit code, and the lines of the log that tell of trouble."""
    _, log = running.process.communicate(timeout=END_WAIT_S)
    return running.process.returncode, [
        line for line in log.splitlines() if any(problem in line for problem in PROBLEMS)
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("keys", ["", KEY])
def test_a_signal_ends_it_with_0(number: signal.Signals, keys: str) -> None:
    """With strangers of all shapes, a session in the middle of an answer, and one that is idle."""
    options = ["--set", f"api_keys={keys}"] if keys else []
    with server("--set", "engine_args=--delta-ms 50", *options) as running:
        status = {} if not keys else BEARER
        url = running.url.replace("http", "ws") + "/v1/realtime"
        while httpx.get(f"{running.url}/healthz").status_code != 200:
            pass
        with (
            connect(url, additional_headers=status) as answered,
            connect(url, additional_headers=status) as idle,
            strangers(running),
        ):
            next_event(idle, "session.created")
            ask(answered)
            next_event(answered, "response.output_text.delta")
            running.process.send_signal(number)
            assert next_event(answered, "response.done")["response"]["status"] == "completed"
            assert ended(running) == (0, [])


def test_a_second_signal_ends_it_at_once() -> None:
    """In the middle of an answer, with all of the strangers there: still 0, still in order."""
    with server("--set", "engine_args=--delta-ms 1000") as running:
        running.until_ready()
        with connect(running.url.replace("http", "ws") + "/v1/realtime") as answered:
            ask(answered)
            next_event(answered, "response.output_text.delta")
            with strangers(running):
                running.process.send_signal(signal.SIGTERM)
                with pytest.raises(subprocess.TimeoutExpired):
                    running.process.wait(0.5)
                running.process.send_signal(signal.SIGTERM)
                assert ended(running) == (0, [])


def test_a_signal_ends_it_behind_tls(certificate: tuple[Path, Path]) -> None:  # noqa: F811
    """Also where most have not even shaken hands."""
    cert, key = certificate
    with (
        server("--set", f"tls_cert={cert}", "--set", f"tls_key={key}") as running,
        strangers(running),
    ):
        trust = ssl.create_default_context(cafile=str(cert))
        assert httpx.get(f"{running.url}/healthz", verify=trust).json()["gateway"] == "ok"
        running.process.send_signal(signal.SIGTERM)
        assert ended(running) == (0, [])
