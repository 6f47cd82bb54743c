"""gateway.runtime.tasks: every task has an owner that logs, counts and closes; and nobody makes one
elsewhere."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headstart.engine import api
from headstart.gateway.connection.runner import SessionRunner
from headstart.gateway.engine_link import EngineLink, private_endpoint
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.threads import PICTURES
from headstart.gateway.runtime.ticker import Ticker
from headstart.gateway.session.actions import Action, Decode
from headstart.gateway.transport.webrtc import aiortc_hooks, audio_sender, call
from headstart.gateway.transport.webrtc.audio_receiver import AudioReceiver
from headstart.gateway.video.decode_pool import DECODERS
from tests.gateway.shell_fakes import (
    EchoSession,
    RunningGateway,
    fake_engine,
    receive,
    running_gateway,
    until,
)
from tests.gateway.transport.webrtc.peer import Camera, Microphone, calling
from tests.gateway.transport.webrtc.sound import sine

GATEWAY = Path(tasks.__file__).parents[1]


class Broken(Exception):
    """What a test injects."""


def break_it(*_: Any, **__: Any) -> Any:
    raise Broken


async def break_soon(*_: Any, **__: Any) -> Any:
    raise Broken


# --- the helper itself ----------------------------------------------------------------------------


async def test_a_failure_is_logged_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once; with its traceback. A result and a cancel are none."""
    told: list[BaseException] = []
    before = tasks.failures["test"]
    waiting = tasks.own(asyncio.sleep(60), "test", told.append)
    done = tasks.own(asyncio.sleep(0, "result"), "test", told.append)
    failing = tasks.own(break_soon(), "test", told.append)
    waiting.cancel()
    await asyncio.wait({waiting, done, failing})
    assert done.result() == "result"
    assert [type(error) for error in told] == [Broken]
    assert tasks.failures["test"] == before + 1
    (record,) = [r for r in caplog.records if r.name == tasks.log.name]
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)


async def test_who_is_told_may_fail_too(caplog: pytest.LogCaptureFixture) -> None:
    """That is one failure more, and reaches nobody else."""
    before = tasks.failures["test"]
    await asyncio.wait({tasks.own(break_soon(), "test", break_it)})
    assert tasks.failures["test"] == before + 2


async def test_a_guarded_callback_never_raises() -> None:
    """It is given what it is called with."""
    told: list[BaseException] = []
    tasks.guard(break_it, "test", told.append)(1, two=2)
    assert [type(error) for error in told] == [Broken]
    seen: list[int] = []
    tasks.guard(seen.append, "test", told.append)(3)
    assert seen == [3]


async def test_what_nobody_owns_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    """A library's callback that raises, by the loop's handler."""
    loop, before = asyncio.get_running_loop(), tasks.failures[tasks.UNOWNED]
    loop.set_exception_handler(tasks.unhandled)
    loop.call_soon(break_it)
    await asyncio.sleep(0.01)
    assert tasks.failures[tasks.UNOWNED] == before + 1
    assert "Exception in callback" in caplog.text


async def test_a_tick_that_fails_is_called_no_more() -> None:
    """Its owner is told; the others are called as before."""
    ticker, told, ticks = Ticker(0.01), [], []  # type: ignore[var-annotated]
    ticker.add(break_it, told.append)
    end = ticker.add(lambda: ticks.append(1))
    await until(lambda: len(ticks) > 5)
    end()
    assert len(told) == 1


# --- each kind of task ----------------------------------------------------------------------------


class SightedSession(EchoSession):
    """Has a picture decoded when it is told "look"."""

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        if text == "look":
            return [Decode(1, (), ordered=True)]
        return super().receive_text(text, now_ns)


@contextlib.asynccontextmanager
async def with_neighbour() -> AsyncIterator[tuple[RunningGateway, ClientConnection]]:
    """A server with a session that must not notice; at the end it has not."""
    async with running_gateway() as running, connect(running.ws_url) as neighbour:
        await receive(neighbour, "session.created")
        make = running.gateway._make_session

        def make_sighted(session_id: str, engine_ready: bool, model_name: str) -> EchoSession:
            make(session_id, engine_ready, model_name)  # keeps its place in the list
            running.sessions[-1] = SightedSession(session_id, engine_ready, model_name)
            return running.sessions[-1]

        running.gateway._make_session = make_sighted
        yield running, neighbour
        await neighbour.send("still here")
        assert (await receive(neighbour, "echo"))["text"] == "still here"
        assert len(running.gateway.runners) == 1
        assert not running.sessions[0].closed


async def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """How the server closes it."""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(30):
            while True:
                await socket.recv()
    return socket.close_code, socket.close_reason


@pytest.mark.parametrize("kind", ["reader", "writer", "decode", "session", "tick"])
async def test_a_failed_task_ends_its_session(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1011 with a reason, a line in the log, a count by name; the session is closed, and its
    neighbour talks on."""
    async with with_neighbour() as (running, _), connect(running.ws_url) as socket:
        await receive(socket, "session.created")
        runner = list(running.gateway.runners.values())[-1]
        before = tasks.failures[kind]
        match kind:
            case "reader":
                monkeypatch.setattr(runner._channel, "receive", break_soon)
                await socket.send("hello")  # it waits for this with the method it has
            case "writer":
                monkeypatch.setattr(runner._channel, "send", break_soon)
                monkeypatch.setattr(runner._channel, "try_send", lambda _: False)
                monkeypatch.setattr(runner._outbound, "_try_send", lambda _: False)
                await socket.send("hello")
            case "decode":
                monkeypatch.setattr(DECODERS, "run", break_soon)
                await socket.send("look")
            case "session":
                await socket.send("bug")
            case "tick":
                monkeypatch.setattr(runner._outbound, "bounds", None)
        assert await closed(socket) == (1011, "internal error")
        await until(lambda: running.sessions[1].closed)
        assert tasks.failures[kind] == before + 1
        assert [r for r in caplog.records if r.name == tasks.log.name and r.exc_info]


async def test_what_was_said_before_a_reader_failed_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The close comes behind it."""
    async with with_neighbour() as (running, _), connect(running.ws_url) as socket:
        await receive(socket, "session.created")
        runner = list(running.gateway.runners.values())[-1]
        monkeypatch.setattr(runner._channel, "receive", break_soon)
        await socket.send("flood 20")
        floods = [await receive(socket, "flood") for _ in range(20)]
        assert len(floods) == 20
        assert await closed(socket) == (1011, "internal error")


async def test_a_session_that_fails_as_a_whole_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runner raises: the socket is told all the same, and the slot is free."""
    async with with_neighbour() as (running, _):
        before = tasks.failures["session"]
        with monkeypatch.context() as broken:
            broken.setattr(SessionRunner, "run", break_soon)
            async with connect(running.ws_url) as socket:
                assert await closed(socket) == (1011, "internal error")
        await until(lambda: len(running.gateway.runners) == 1)
        assert tasks.failures["session"] == before + 1


CALL_TASKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "call heartbeat": lambda patch: patch.setattr(call.Call, "_count", break_it),
    "call path": lambda patch: patch.setattr(aiortc_hooks, "round_trip_ns", break_soon),
    "camera": lambda patch: patch.setattr(PICTURES, "run", break_soon),
    "microphone": lambda patch: patch.setattr(AudioReceiver, "receive", break_it),
}


@pytest.mark.parametrize("kind", CALL_TASKS)
async def test_a_failed_task_ends_its_call(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of the connection below the session. A call sees its end; why is in the log."""
    async with with_neighbour() as (running, _):
        before = tasks.failures[kind]
        microphone = Microphone(sine(440, 20, 48_000))
        caplog.set_level(logging.INFO, "headstart.rtc")
        async with calling(running.url, microphone, Camera()) as peer:
            with monkeypatch.context() as broken:
                CALL_TASKS[kind](broken)
                await until(lambda: running.sessions[1].closed)
            await until(lambda: peer.pc.connectionState in ("closed", "failed"))
        assert tasks.failures[kind] == before + 1
        assert "a call is ended: internal error" in caplog.text
        assert running.gateway.calls is not None
        await until(lambda: not len(running.gateway.calls or ()))


async def test_a_playout_that_fails_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the answers would be silent, and nobody know why."""
    async with with_neighbour() as (running, _):
        before = tasks.failures["playout"]
        monkeypatch.setattr(audio_sender, "encoder_of", lambda _: break_it)
        async with calling(running.url, Microphone()):
            runner = list(running.gateway.runners.values())[-1]
            assert runner._player is not None
            runner._player.put(bytes(48_000))
            await until(lambda: running.sessions[1].closed)
        assert tasks.failures["playout"] == before + 1


async def test_a_drain_that_fails_still_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for nothing any more."""
    before = tasks.failures["drain"]
    async with running_gateway() as running:
        monkeypatch.setattr(running.gateway, "drain", break_soon)
    assert tasks.failures["drain"] == before + 1


async def test_one_listener_of_the_engine_that_fails_keeps_nothing_from_the_others() -> None:
    """Neither an event nor the news that the engine is ready or lost."""

    class Listener:
        """A session's side of the link; `broken`: its methods raise."""

        def __init__(self, broken: bool) -> None:
            self.broken, self.calls = broken, list[str]()

        def called(self, what: str) -> None:
            self.calls.append(what)
            if self.broken:
                raise Broken

        def engine_event(self, event: api.Event) -> None:
            self.called("event")

        def engine_lost(self) -> None:
            self.called("lost")

        def engine_ready(self, ready: api.Ready) -> None:
            self.called("ready")

    before = tasks.failures["engine link"]
    with private_endpoint() as endpoint:
        link = EngineLink(endpoint)
        listeners = {"a": Listener(True), "b": Listener(False)}
        for name, listener in listeners.items():
            link.attach(name, listener)
        link.start()
        async with fake_engine(endpoint):
            await until(lambda: link.is_ready)
            for name in listeners:  # neither is open: each is told so
                link.send(api.Instruct(name, "x"))
            await until(lambda: all("event" in one.calls for one in listeners.values()))
            link.lost("a test says so")
        link.close()
    assert [one.calls for one in listeners.values()] == [["ready", "event", "lost"]] * 2
    assert tasks.failures["engine link"] == before + 3


# --- nobody makes one elsewhere -------------------------------------------------------------------

MAKERS = {"create_task", "ensure_future", "TaskGroup", "add_done_callback"}
CALLBACKS = {"call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1}
ELSEWHERE = {
    "tasks.py": "the helper",
    "ticker.py": "its timer is set before the callbacks are called, which are guarded",
}


def calls_of(path: Path) -> list[tuple[int, str, ast.Call]]:
    """Line, name and node of each call of a method or function."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            found.append((node.lineno, name, node))
    return found


def is_guarded(node: ast.Call, position: int, guards: set[str]) -> bool:
    """Whether what the loop is to call comes from `tasks.guard`, there or under a name of its."""
    given = node.args[position]
    if isinstance(given, ast.Name | ast.Attribute):
        return ast.unparse(given) in guards
    return isinstance(given, ast.Call) and ast.unparse(given.func).endswith("guard")


def guards_of(path: Path) -> set[str]:
    return {
        ast.unparse(name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).endswith("guard")
        for name in node.targets
        if isinstance(name, ast.Name | ast.Attribute)
    }


def test_tasks_and_callbacks_are_made_by_the_helper_alone() -> None:
    """Whoever adds one has to say who owns it."""
    bare = []
    for path in sorted(GATEWAY.rglob("*.py")):
        if path.name in ELSEWHERE:
            continue
        guards = guards_of(path)
        for line, name, node in calls_of(path):
            loose = name in CALLBACKS and not is_guarded(node, CALLBACKS[name], guards)
            if name in MAKERS or loose:
                bare.append(f"{path.relative_to(GATEWAY)}:{line} {name}")
    assert bare == []


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    """A bare task, and a bare callback, in a file made for it."""
    source = tmp_path / "module.py"
    source.write_text("loop.create_task(f())\nloop.call_later(1, f)\nloop.call_soon(guard(f))\n")
    names = [name for _, name, _ in calls_of(source) if name in MAKERS | set(CALLBACKS)]
    assert names == ["create_task", "call_later", "call_soon"]
    later, soon = (n for _, name, n in calls_of(source) if name in CALLBACKS)
    assert not is_guarded(later, 1, set())
    assert is_guarded(soon, 0, set())


def test_names_are_labels() -> None:
    """Every name of a task is written where it is made, and there are few."""
    names = set()
    for path in sorted(GATEWAY.rglob("*.py")):
        for _, name, node in calls_of(path) if path.name != "tasks.py" else ():
            if name in ("own", "awaited", "guard") and len(node.args) > 1:
                names.add(ast.unparse(node.args[1]))
    assert len(names) < 40
    assert all(name.startswith("'") or name == "name" for name in names)
