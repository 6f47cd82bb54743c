"""Several engines of one server: real processes, the scripted engine, kill -9, and keys."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.sync.client import connect

from tests.gateway.server.running import (
    WAIT_S,
    Server,
    ask,
    free_port,
    next_event,
    server,
    until,
)

SLOW = "engine_args=--delta-ms 300"
WORDS = "This is an answer that comes word by word."


def engines_of(running: Server) -> dict[str, dict[str, Any]]:
    return {engine["name"]: engine for engine in running.status()["engines"]}


def states(running: Server) -> dict[str, str]:
    return {name: engine["state"] for name, engine in engines_of(running).items()}


def all_ready(running: Server, count: int) -> bool:
    return list(states(running).values()) == ["ready"] * count


@contextlib.contextmanager
def conversing(running: Server, count: int) -> Iterator[list[Any]]:
    """So many sessions, which want to be told of their engine."""
    with contextlib.ExitStack() as stack:
        sockets: list[Any] = []
        for _ in range(count):
            socket = connect(running.url.replace("http", "ws") + "/v1/realtime")
            sockets.append(stack.enter_context(socket))
            session = {"type": "realtime", "gateway": {"events": ["engine"]}}
            sockets[-1].send(json.dumps({"type": "session.update", "session": session}))
            next_event(sockets[-1], "session.updated")
        yield sockets


def rest_of_answer(socket: Any) -> tuple[str, list[str]]:
    """How it ended, and the states of the engine that the session was told meanwhile."""
    told: list[str] = []
    while True:
        event = next_event(socket, "response.done", "gateway.engine.status")
        if event["type"] == "response.done":
            return event["response"]["status"], told
        told.append(event["status"])


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["response"]["output"][0]["content"][0]["text"]
    return text


def test_a_killed_engine_hurts_only_its_own_sessions() -> None:
    """SIGKILL of one of three in mid-answer: its sessions' answers fail, and their next turns work
    at another engine before that one is back; the others' answers come whole, and they are told
    nothing. `/status` and `/metrics` name all three."""
    with server("--engines", "3", "--set", SLOW) as running:
        until(lambda: all_ready(running, 3))
        with conversing(running, 6) as sockets:
            assert [e["sessions"] for e in engines_of(running).values()] == [2, 2, 2]
            for socket in sockets:
                ask(socket)
            for socket in sockets:
                next_event(socket, "response.output_text.delta")
            os.kill(engines_of(running)["engine-2"]["pid"], signal.SIGKILL)
            ended = [rest_of_answer(socket) for socket in sockets]
            assert sorted(how for how, _ in ended) == ["completed"] * 4 + ["failed"] * 2
            assert all(told == [] for how, told in ended if how == "completed")
            for socket in sockets:
                ask(socket)
            for socket in sockets:
                done = next_event(socket, "response.done")
                assert done["response"]["status"] == "completed"
                assert text_of(done) == WORDS
            until(lambda: all_ready(running, 3))
            restarts = {name: e["restarts"] for name, e in engines_of(running).items()}
            assert restarts == {"engine-1": 0, "engine-2": 1, "engine-3": 0}
            assert running.status()["engine"]["restarts"] == 1
            assert sum(e["sessions"] for e in engines_of(running).values()) == 6
        page = httpx.get(f"{running.url}/metrics").text
        assert 'headstart_engine_state{engine="engine-2",state="ready"} 1.0' in page
        assert 'headstart_engine_losses_total{engine="engine-2"} 1.0' in page
        assert 'headstart_engine_losses_total{engine="engine-1"} 0.0' in page
        assert "headstart_sessions_moved_total 2.0" in page
        assert "headstart_engine_up 1.0" in page
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WAIT_S) == 0


def test_sessions_of_the_only_engine_wait_for_it() -> None:
    """Two engines, both killed: every session is told, waits, and goes on when one is back."""
    with server("--engines", "2", "--set", "engine_args=--load-ms 300") as running:
        until(lambda: all_ready(running, 2))
        with conversing(running, 2) as sockets:
            for engine in engines_of(running).values():
                os.kill(engine["pid"], signal.SIGKILL)
            # A session may be told of an engine that is dead too, before that one is missed.
            until(lambda: [e["restarts"] for e in engines_of(running).values()] == [1, 1])
            until(lambda: all_ready(running, 2))
            until(lambda: sum(e["sessions"] for e in engines_of(running).values()) == 2)
            for socket in sockets:
                ask(socket)
                how, told = rest_of_answer(socket)
                assert how == "completed"
                assert (told[0], told[-1]) == ("restarting", "ready")


def test_a_drained_engine_ends_when_its_last_session_is_gone() -> None:
    """SIGUSR1: it answers on, gets no new session, and is not started again; the rest goes on.
    When all have been drained, the server ends with 0."""
    with server("--engines", "2", "--set", SLOW) as running:
        until(lambda: all_ready(running, 2))
        with conversing(running, 2) as sockets:
            pids = {name: engine["pid"] for name, engine in engines_of(running).items()}
            os.kill(pids["engine-1"], signal.SIGUSR1)
            until(lambda: states(running)["engine-1"] == "draining")
            with conversing(running, 2):
                held = {name: e["sessions"] for name, e in engines_of(running).items()}
                assert held == {"engine-1": 1, "engine-2": 3}
            for socket in sockets:
                ask(socket)
            for socket in sockets:
                assert text_of(next_event(socket, "response.done")) == WORDS
            assert psutil.pid_exists(pids["engine-1"])
        until(lambda: states(running)["engine-1"] == "drained")
        until(lambda: not psutil.pid_exists(pids["engine-1"]))
        assert running.status()["engine"]["state"] == "ready"
        with conversing(running, 1) as sockets:
            ask(sockets[0])
            assert text_of(next_event(sockets[0], "response.done")) == WORDS
        os.kill(pids["engine-2"], signal.SIGUSR1)
        assert running.process.wait(WAIT_S) == 0


def test_no_session_is_opened_at_engines_that_all_drain() -> None:
    """503 before the upgrade, with the reason; `/ready` tells load balancers."""
    with server("--engines", "2", "--set", SLOW) as running:
        until(lambda: all_ready(running, 2))
        with conversing(running, 2):
            assert httpx.get(f"{running.url}/ready").status_code == 200
            for engine in engines_of(running).values():
                os.kill(engine["pid"], signal.SIGUSR1)
            until(lambda: set(states(running).values()) == {"draining"})
            refused = httpx.get(f"{running.url}/ready")
            assert refused.status_code == 503
            with contextlib.suppress(Exception):
                connect(running.url.replace("http", "ws") + "/v1/realtime").close()
            assert running.status()["sessions"]["refused"] == 1


def test_engines_of_elsewhere_join_by_the_commands_of_the_page(tmp_path: Path) -> None:
    """`headstart keys`, a gateway without engines of its own, and two `headstart engine` with
    their keys over TCP. One that is drained at its host ends there, with 0."""
    headstart = [sys.executable, "-m", "headstart"]
    keys = tmp_path / "keys"
    subprocess.run([*headstart, "keys", str(keys), "a", "b"], check=True, stdout=subprocess.DEVNULL)
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        own = ("--set", f"engine_endpoint={endpoint}", "--set", f"engine_keys={keys}/gateway")
        running = stack.enter_context(server("--engines", "0", *own))
        assert running.status()["engines"] == []
        assert running.status()["engine"]["state"] == "waiting"
        elsewhere = {}
        for name in ("a", "b"):
            argv = [*headstart, "engine", "--engine", "fake", "--engine-endpoint", endpoint]
            argv += ["--set", f"engine_keys={keys}/{name}", "--set", SLOW]
            elsewhere[name] = stack.enter_context(subprocess.Popen(argv))
            stack.callback(elsewhere[name].kill)
        until(lambda: states(running) == {"a": "ready", "b": "ready"})
        with conversing(running, 2) as sockets:
            assert {e["sessions"] for e in engines_of(running).values()} == {1}
            elsewhere["a"].send_signal(signal.SIGUSR1)
            until(lambda: states(running) == {"a": "draining", "b": "ready"})
            for socket in sockets:
                ask(socket)
                assert text_of(next_event(socket, "response.done")) == WORDS
        assert elsewhere["a"].wait(WAIT_S) == 0
        until(lambda: states(running) == {"a": "drained", "b": "ready"})


def test_what_the_dashboard_is_told() -> None:
    """Each session's engine in its row, and all engines' states in a snapshot."""
    with server("--engines", "2") as running:
        until(lambda: all_ready(running, 2))
        url = running.url.replace("http", "ws") + "/v1/dashboard"
        with conversing(running, 2), connect(url) as feed:
            snapshot = next_event(feed, "snapshot")
        assert sorted(row["engine"] for row in snapshot["rows"]) == ["engine-1", "engine-2"]
        told = [(engine["name"], engine["state"]) for engine in snapshot["engines"]]
        assert told == [("engine-1", "ready"), ("engine-2", "ready")]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--engines", "0"], "engine_endpoint"),
        (["serve", "--set", "engine_endpoint=tcp://0.0.0.0:7070"], "engine_keys"),
        (["web", "--engine-endpoint", "tcp://0.0.0.0:7070"], "engine_keys"),
        (["engine", "--engine-endpoint", "tcp://192.0.2.1:7070"], "engine_keys"),
        (["serve", "--set", "gateway_name=A_b"], "gateway_name"),
        (["keys", "/dev/null/x", "a"], "cannot write keys"),
        (["keys", "x", "../a"], "cannot be called"),
    ],
)
def test_what_cannot_be_is_named(arguments: list[str], named: str) -> None:
    """Before anything is started: code 2, a sentence, and no traceback."""
    argv = [sys.executable, "-m", "headstart", *arguments]
    if arguments[0] in ("serve", "web"):
        argv += ["--port", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
