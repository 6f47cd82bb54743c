"""Engines that connect from elsewhere: by name, by key, again, and with another machine's clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq

from headstart.engine import api
from headstart.engine.api.keys import (
    Accepted,
    BadKeys,
    accepted_engines,
    check_address,
    make_keys,
    own_pair,
)
from headstart.gateway.engine_link import private_endpoint
from headstart.gateway.engines.engines import Engines
from headstart.gateway.engines.port import EnginePort
from headstart.gateway.errors import ConfigError
from tests.gateway.shell_fakes import WAIT_S, fake_engine, until

TCP = "tcp://127.0.0.1:*"
HANDSHAKE_S = 30.0  # after which ZeroMQ ends one by itself


class Listener:
    """A session's side."""

    def __init__(self) -> None:
        self.events: list[api.Event] = []
        self.calls: list[str] = []

    def engine_event(self, event: api.Event) -> None:
        self.events.append(event)

    def engine_lost(self) -> None:
        self.calls.append("lost")

    def engine_ready(self, ready: api.Ready) -> None:
        self.calls.append(f"ready {ready.engine}")

    def of(self, kind: type[api.Event]) -> list[api.Event]:
        return [event for event in self.events if isinstance(event, kind)]


@contextlib.asynccontextmanager
async def port(endpoint: str = TCP, keys: Path | None = None) -> AsyncIterator[Engines]:
    engines = Engines(port=EnginePort(endpoint, keys), lost_after_s=5.0)
    engines.start()
    try:
        yield engines
    finally:
        engines.close()


def connected(engines: Engines, *options: str) -> contextlib.AbstractAsyncContextManager[object]:
    assert engines.endpoint is not None
    return fake_engine(engines.endpoint, *options)


def states(engines: Engines) -> dict[str, str]:
    return {name: member.state for name, member in engines.members.items()}


async def all_ready(engines: Engines, *names: str) -> None:
    await until(lambda: states(engines) == dict.fromkeys(names, "ready"))


def begin(engines: Engines, session: str) -> Listener:
    listener = Listener()
    engines.attach(session, listener)
    assert engines.send(api.Open(session, ""))
    return listener


def respond(engines: Engines, session: str) -> None:
    assert engines.send(api.Respond(session, 1, "item", api.Sampling()))


async def test_engines_come_and_go() -> None:
    """Any number, known by the names they give themselves. Sessions spread over them; those of one
    that is killed go on at the other, and its name waits for it to come back."""
    async with port() as engines, connected(engines, "--name", "a"):
        await all_ready(engines, "a")
        async with connected(engines, "--name", "b") as b:
            await until(lambda: states(engines) == {"a": "ready", "b": "ready"})
            sessions = {name: begin(engines, name) for name in ("s1", "s2", "s3", "s4")}
            assert [len(m.link.sessions) for m in engines.members.values()] == [2, 2]
            at_b = [name for name in sessions if engines.engine_of(name) == "b"]
            assert isinstance(b, asyncio.subprocess.Process)
            b.kill()
            await until(lambda: states(engines)["b"] == "lost")
            await until(lambda: all(engines.engine_of(name) == "a" for name in sessions))
        for name, listener in sessions.items():
            assert listener.calls == (["lost", "ready a"] if name in at_b else [])
        async with connected(engines, "--name", "b"):
            await until(lambda: states(engines) == {"a": "ready", "b": "ready"})
            assert engines.moved == 2
            begin(engines, "s5")
            assert engines.engine_of("s5") == "b", "the one with fewer"


async def test_a_name_is_not_taken_from_an_engine_that_answers() -> None:
    """The second of that name gets no ping, and the first one keeps its sessions."""
    async with port() as engines, connected(engines, "--name", "a"):
        await all_ready(engines, "a")
        first = engines.members["a"].link.ready
        listener = begin(engines, "s")
        async with connected(engines, "--name", "a"):
            assert engines._port is not None
            await until(lambda: engines._port is not None and engines._port._refused)
            respond(engines, "s")
            await until(lambda: listener.of(api.Finished))
        assert engines.members["a"].link.ready is first
        assert listener.calls == []


async def test_what_is_no_name_or_no_hello_is_refused() -> None:
    """Neither reaches a label, a page or the log as it is."""
    async with port() as engines:
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            assert engines.endpoint is not None
            socket.connect(engines.endpoint)
            for data in (b"", b"\xc1", api.encode(api.Draining()), api.encode(_ready("A\nb"))):
                socket.send(data)
            socket.send(api.encode(_ready("good")))
            await until(lambda: engines.members)
        assert list(engines.members) == ["good"]


def _ready(name: str, model: str = "fake") -> api.Ready:
    return api.Ready("1", api.ModelInfo(model, 1, 1, 1, 1, 1.0), name)


async def test_an_engine_that_connects_again_is_not_another_one() -> None:
    """Its own end of the old connection has broken, which the gateway does not know yet: the same
    process (`incarnation`) goes on, and is pinged over the new one."""
    async with port() as engines:
        assert engines.endpoint is not None
        with (
            zmq.Context() as context,
            context.socket(zmq.DEALER) as old,
            context.socket(zmq.DEALER) as new,
        ):
            for socket in (old, new):
                socket.linger = 0
                socket.connect(engines.endpoint)
            old.send(api.encode(_ready("a")))
            await until(lambda: states(engines) == {"a": "ready"})
            new.send(api.encode(_ready("a")))
            await until(lambda: new.poll(0))
            assert states(engines) == {"a": "ready"}


async def test_a_message_of_too_many_parts_is_dropped_also_at_the_end() -> None:
    """The connection's end is noticed all the same."""
    async with port() as engines:
        assert engines.endpoint is not None
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.connect(engines.endpoint)
            socket.send(api.encode(_ready("a")))
            await until(lambda: states(engines) == {"a": "ready"})
            socket.send_multipart([b"a", b"b", b"c"])
        # Both have left; nothing has been read of them, since the loop did not run.
        assert engines._port is not None
        assert engines._port._monitor.poll(int(WAIT_S * 1000))
        engines._port._reader.read_monitor()
        assert states(engines) == {"a": "lost"}


async def test_an_engine_with_another_model_gets_no_sessions() -> None:
    """A session may move, so a gateway's engines serve one model; which one is told."""
    async with port() as engines, connected(engines, "--name", "a"):
        await all_ready(engines, "a")
        async with connected(engines, "--name", "b", "--model-name", "other"):
            await until(lambda: states(engines) == {"a": "ready", "b": "refused"})
            assert "'other'" in engines.members["b"].reason
            for number in range(4):
                begin(engines, f"s{number}")
                assert engines.engine_of(f"s{number}") == "a"


async def test_silence_is_a_loss_and_its_sessions_are_closed_there_later() -> None:
    """SIGSTOP: its sessions move. When it goes on it is told to close them, and is used again."""
    async with port() as engines, connected(engines, "--name", "a") as a:
        await all_ready(engines, "a")
        async with connected(engines, "--name", "b"):
            await until(lambda: states(engines) == {"a": "ready", "b": "ready"})
            for number in range(4):
                begin(engines, f"s{number}")
            link = engines.members["a"].link
            await until(lambda: link.stats is not None and link.stats.sessions == 2)
            assert isinstance(a, asyncio.subprocess.Process)
            a.send_signal(signal.SIGSTOP)
            await until(lambda: states(engines)["a"] == "lost")
            await until(lambda: len(engines.members["b"].link.sessions) == 4)
            a.send_signal(signal.SIGCONT)
            await until(lambda: states(engines)["a"] == "ready")
            await until(lambda: link.stats is not None and link.stats.sessions == 0)


# --- keys ----------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Folders `gateway`, `a` and `b`."""
    assert [path.name for path in make_keys(tmp_path, ["a", "b"])] == ["gateway", "a", "b"]
    return tmp_path


async def test_an_engine_with_its_key_connects_and_is_known_by_it(keys: Path) -> None:
    """Whatever it calls itself."""
    async with (
        port(keys=keys / "gateway") as engines,
        connected(engines, "--keys", str(keys / "a")),
        connected(engines, "--keys", str(keys / "b"), "--name", "gpu-0"),
    ):
        await until(lambda: states(engines) == {"a": "ready", "b/gpu-0": "ready"})
        listener = begin(engines, "s")
        respond(engines, "s")
        await until(lambda: listener.of(api.Finished))


async def test_an_engine_without_the_right_key_cannot_connect(keys: Path, tmp_path: Path) -> None:
    """No key, a key that the gateway does not know, one that was removed while it ran, and a wrong
    key of the gateway: none gets through, and those with keys do."""
    make_keys(tmp_path / "others", ["x"])
    stranger = tmp_path / "stranger"
    shutil.copytree(tmp_path / "others" / "x", stranger)
    shutil.copyfile(keys / "gateway" / "own.key", stranger / "gateway.key")
    (keys / "gateway" / "engines" / "b.key").unlink()
    async with (
        port(keys=keys / "gateway") as engines,
        connected(engines, "--name", "none"),
        connected(engines, "--keys", str(stranger)),
        connected(engines, "--keys", str(tmp_path / "others" / "x")),
        connected(engines, "--keys", str(keys / "b")),
        connected(engines, "--keys", str(keys / "a")),
    ):
        await until(lambda: "a" in states(engines))
        # Each of the others has tried at least once more by then: ZeroMQ does so ten times a
        # second, and heartbeats come once in a second.
        await until(lambda: engines.members["a"].link.counters.events >= 4)
        assert list(engines.members) == ["a"]


async def test_a_key_may_be_added_while_the_gateway_runs(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is read for each connection, and an engine that was refused tries again, which
    ZeroMQ does not do."""
    verdicts: list[bool] = []
    judge = Accepted.callback

    def judged(accepted: Accepted, domain: str, key: bytes) -> bool:
        verdicts.append(judge(accepted, domain, key))
        return verdicts[-1]

    monkeypatch.setattr(Accepted, "callback", judged)
    accepted = keys / "gateway" / "engines" / "b.key"
    kept = accepted.read_text()
    accepted.unlink()
    async with (
        port(keys=keys / "gateway") as engines,
        connected(engines, "--keys", str(keys / "a")),
        connected(engines, "--keys", str(keys / "b")),
    ):
        await until(lambda: "a" in states(engines) and False in verdicts)
        accepted.write_text(kept)
        await until(lambda: states(engines) == {"a": "ready", "b": "ready"})


async def test_a_key_file_that_is_none_concerns_no_other(keys: Path) -> None:
    """One that is being copied there, perhaps."""
    async with port(keys=keys / "gateway") as engines:
        (keys / "gateway" / "engines" / "b.key").write_text("")
        async with connected(engines, "--keys", str(keys / "a")):
            await all_ready(engines, "a")


async def test_who_has_no_key_can_make_the_gateway_allocate_little(keys: Path) -> None:
    """A frame of a gibibyte, announced where the handshake belongs, ends the connection."""
    async with port(keys=keys / "gateway") as engines:
        assert engines.endpoint is not None
        host, _, number = engines.endpoint.removeprefix("tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number))
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
        command, long = 4, 2  # flags of ZMTP's frames
        writer.write(greeting + bytes([command | long]) + (1 << 30).to_bytes(8, "big"))
        async with asyncio.timeout(HANDSHAKE_S / 2):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()  # its greeting, and the end
        writer.close()


@pytest.mark.parametrize(
    "address", ["tcp://0.0.0.0:*", "tcp://*:0", "tcp://192.0.2.1:7070", "tipc://{1,0,0}"]
)
def test_an_address_for_others_needs_keys(address: str) -> None:
    """Refused by name, at both ends; ipc and loopback need none."""
    with pytest.raises(ConfigError, match="engine_keys"):
        EnginePort(address)
    with pytest.raises(BadKeys, match="headstart keys"):
        check_address(address, None)
    for local in ("ipc:///x", "tcp://127.0.0.1:7070", "tcp://localhost:7070", "tcp://[::1]:7070"):
        check_address(local, None)


async def test_with_keys_an_address_for_others_is_bound(keys: Path) -> None:
    """And without the right files it is said which one is missing."""
    async with port("tcp://0.0.0.0:*", keys / "gateway") as engines:
        assert engines.endpoint is not None
    with pytest.raises(ConfigError, match=r"own\.key_secret"):
        EnginePort("tcp://0.0.0.0:*", keys)


def test_a_secret_key_is_its_owners(keys: Path) -> None:
    """Mode 0600, and refused if others may read it; making keys again changes none."""
    secret = keys / "a" / "own.key_secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    before = secret.read_bytes()
    assert [path.name for path in make_keys(keys, ["a", "c"])] == ["c"]
    assert secret.read_bytes() == before
    assert sorted(accepted_engines(keys / "gateway").values()) == ["a", "b", "c"]
    secret.chmod(0o644)
    with pytest.raises(BadKeys, match="0600"):
        own_pair(keys / "a")
    with pytest.raises(BadKeys, match="cannot be called"):
        make_keys(keys, ["../x"])
    secret.chmod(0o600)
    text = secret.read_text()
    assert text.count("secret-key") == 1
    secret.write_text(re.sub(r'secret-key = ".{40}"', f'secret-key = "{"~" * 40}"', text))
    with pytest.raises(BadKeys, match="Z85"):
        own_pair(keys / "a")
    secret.write_text("nonsense")
    with pytest.raises(BadKeys, match="headstart keys"):
        own_pair(keys / "a")


# --- clocks --------------------------------------------------------------------------------------


async def test_another_machines_clock_is_translated() -> None:
    """An engine whose clock is an hour ahead: its spans and stamps come in our time, and what it
    computes from our stamps is right, too."""
    async with port() as engines, connected(engines, "--name", "a", "--clock-ms", "3600000"):
        await all_ready(engines, "a")
        await until(lambda: engines.stats)
        listener = begin(engines, "s")
        loop = asyncio.get_running_loop()
        before_ns = round(loop.time() * 1e9)
        ref = api.TurnRef(1)
        engines.send(api.BeginSpeech("s", ref, "item_0", 0))
        engines.send(api.Audio("s", ref, 0, bytes(32_000), before_ns))
        respond(engines, "s")
        await until(lambda: listener.of(api.Finished) and listener.of(api.Chunk))
        after_ns = round(loop.time() * 1e9)
        (chunk,) = listener.of(api.Chunk)
        first = listener.of(api.Delta)[0]
    assert isinstance(chunk, api.Chunk)
    assert isinstance(first, api.Delta)
    slack_ns = after_ns - before_ns  # the estimate errs by less than half a heartbeat's way
    assert abs(chunk.latency_ms) * 1e6 < 2 * slack_ns
    assert before_ns - slack_ns < first.spans[0].start_ns < after_ns + slack_ns
    assert before_ns - slack_ns < first.at_ns < after_ns + slack_ns


async def test_a_file_that_is_cleaned_away_is_made_again() -> None:
    """As for a link of one engine: the next engine can connect."""
    with private_endpoint() as endpoint:
        engines = Engines(port=EnginePort(endpoint, address_check_s=0.05))
        engines.start()
        try:
            async with connected(engines, "--name", "a"):
                await all_ready(engines, "a")
                path = endpoint.removeprefix("ipc://")
                os.unlink(path)
                await until(lambda: os.path.exists(path))
                async with connected(engines, "--name", "b"):
                    await until(lambda: states(engines) == {"a": "ready", "b": "ready"})
        finally:
            engines.close()
