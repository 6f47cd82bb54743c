import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from headstart.engine import api
from headstart.gateway.engine_link import (
    HIGH_WATER_MESSAGES,
    EngineLink,
    LinkObserver,
    LinkState,
    WireUser,
    private_endpoint,
    shared_endpoint,
)
from tests.gateway.shell_fakes import fake_engine, until


class Listener:
    def __init__(self) -> None:
        self.events: list[api.Event] = []
        self.calls: list[str] = []

    def engine_event(self, event: api.Event) -> None:
        self.events.append(event)

    def engine_lost(self) -> None:
        self.calls.append("lost")

    def engine_ready(self, ready: api.Ready) -> None:
        self.calls.append(f"ready {ready.incarnation}")

    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, api.Delta))

    def finished(self) -> bool:
        return any(isinstance(event, api.Finished) for event in self.events)


@pytest.fixture
async def link() -> AsyncIterator[EngineLink]:
    with private_endpoint() as endpoint:
        link = EngineLink(endpoint)
        link.start()
        yield link
        link.close()


def ask(link: EngineLink, session: str, generation: int = 1) -> None:
    link.send(api.Open(session, "be brief"))
    link.send(api.Respond(session, generation, "item", api.Sampling()))


async def burst(answer: str) -> str:
    """One answer whose events all come at once; its text as it arrived."""
    options = ("--answer", answer, "--delta-ms", "0", "--first-delta-ms", "0")
    listener = Listener()
    with private_endpoint() as endpoint:
        link = EngineLink(endpoint)
        link.start()
        async with fake_engine(link.endpoint, *options):
            await until(lambda: link.is_ready)
            link.attach("s", listener)
            link.send(api.Open("s", ""))
            link.send(api.Respond("s", 1, "item", api.Sampling(max_tokens=4096)))
            await until(listener.finished)
        link.close()
    return listener.text()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_burst_arrives_whole(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A thousand events in one burst all arrive, in order, under either loop: ZeroMQ's
    edge-triggered descriptor loses no wake-up."""
    answer = " ".join(str(number) for number in range(1000))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(burst(answer)) == answer


async def test_events_go_to_their_session_only(link: EngineLink) -> None:
    """Each listener hears its own session; events for a session that left are counted as stale."""
    async with fake_engine(link.endpoint):
        await until(lambda: link.is_ready)
        first, second = Listener(), Listener()
        link.attach("a", first)
        link.attach("b", second)
        ask(link, "a")
        ask(link, "gone")
        await until(first.finished)
        await until(lambda: link.counters.events_stale >= 2)
        assert second.events == []


async def test_loading_then_ready(link: EngineLink) -> None:
    """Progress is seen while the engine loads; commands told meanwhile are counted, not sent."""
    seen: list[str] = []

    class Observer(LinkObserver):
        def engine_loading(self, loading: api.Loading) -> None:
            seen.append(f"{loading.done}/{loading.total}")

        def engine_ready(self, ready: api.Ready) -> None:
            seen.append("ready")

    link.observer = Observer()
    async with fake_engine(link.endpoint, "--load-ms", "60"):
        await until(lambda: link.state is LinkState.LOADING)
        assert not link.send(api.Open("s", ""))
        assert link.counters.commands_not_sent == 1
        await until(lambda: link.is_ready)
        assert seen == ["0/100", "50/100", "ready"]


async def test_killed_engine_is_lost_and_another_is_ready(link: EngineLink) -> None:
    """SIGKILL is noticed by the closed connection; a new incarnation makes sessions ready again."""
    listener = Listener()
    link.attach("s", listener)
    async with fake_engine(link.endpoint) as process:
        await until(lambda: link.is_ready)
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: link.state is LinkState.LOST)
    async with fake_engine(link.endpoint):
        await until(lambda: link.is_ready)
        assert [call.split()[0] for call in listener.calls] == ["ready", "lost", "ready"]
        assert listener.calls[0] != listener.calls[2]
        assert link.counters.losses == 1


async def test_silent_engine_is_lost_and_comes_back() -> None:
    """No word for longer than allowed: lost, and the observer may kill it. When the same
    incarnation speaks again, sessions are closed there before they are opened anew."""
    stalled: list[str] = []

    class Observer(LinkObserver):
        def engine_stalled(self, reason: str) -> None:
            stalled.append(reason)

    with private_endpoint() as endpoint:
        link = EngineLink(endpoint, lost_after_s=1.5)
        link.observer = Observer()
        listener = Listener()
        link.attach("s", listener)
        link.start()
        async with fake_engine(link.endpoint) as process:
            await until(lambda: link.is_ready)
            process.send_signal(signal.SIGSTOP)
            await until(lambda: link.state is LinkState.LOST)
            process.send_signal(signal.SIGCONT)
            await until(lambda: link.is_ready)
        link.close()
    assert len(stalled) == 1
    assert "silent" in stalled[0]
    assert listener.calls[0] == listener.calls[2]


async def test_a_paused_machine_loses_no_engine() -> None:
    """Gateway and engine stood still together for longer than an engine may be silent, which is
    less than what counts as standing still where engines may be silent for longer."""
    with private_endpoint() as endpoint:
        link = EngineLink(endpoint, lost_after_s=2.0)
        link.start()
        async with fake_engine(link.endpoint) as process:
            await until(lambda: link.is_ready)
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.3)  # until all that it had sent is read
            time.sleep(3.5)  # the whole loop stands still
            await asyncio.sleep(0.1)  # and goes on before the engine does: the next heartbeat
            assert link.counters.losses == 0
            process.send_signal(signal.SIGCONT)
            heard = link.counters.events
            await until(lambda: link.counters.events > heard + 1)
            assert link.is_ready
            assert link.counters.losses == 0
        link.close()


async def test_a_listener_that_fails_keeps_nothing_from_the_others(
    link: EngineLink, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor an observer that cannot print: every session hears that the engine is ready, is lost, and
    what it says."""

    class Failing(Listener):
        def engine_event(self, event: api.Event) -> None:
            raise ZeroDivisionError("an event")

        def engine_lost(self) -> None:
            raise ZeroDivisionError("lost")

        def engine_ready(self, ready: api.Ready) -> None:
            raise ZeroDivisionError("ready")

    class Observer(LinkObserver):
        def engine_ready(self, ready: api.Ready) -> None:
            raise BrokenPipeError("nobody reads the terminal")

    link.observer = Observer()
    listener = Listener()
    link.attach("failing", Failing())
    link.attach("s", listener)
    async with fake_engine(link.endpoint):
        await until(lambda: listener.calls)
        ask(link, "failing")
        ask(link, "s")
        await until(listener.finished)
    await until(lambda: "lost" in listener.calls)
    assert listener.text()
    for what in ("an event", "lost", "ready", "nobody reads the terminal"):
        assert what in caplog.text


async def test_full_queue_loses_the_engine(link: EngineLink) -> None:
    """An engine that reads nothing is lost when its queue is full; telling never blocks."""
    async with fake_engine(link.endpoint) as process:
        await until(lambda: link.is_ready)
        process.send_signal(signal.SIGSTOP)
        command = api.Instruct("s", "x" * 1000)
        told = 0
        while link.send(command) and told < 4 * HIGH_WATER_MESSAGES:
            told += 1
        await until(lambda: link.state is LinkState.LOST)
        assert HIGH_WATER_MESSAGES // 2 < told < 4 * HIGH_WATER_MESSAGES
        assert "waiting to be read" in link.reason


async def test_a_late_gateway_learns_that_the_engine_is_ready() -> None:
    """A gateway that starts after the engine hears `Ready` at the handshake."""
    with private_endpoint() as endpoint:
        first = EngineLink(endpoint)
        first.start()
        async with fake_engine(endpoint):
            await until(lambda: first.is_ready)
            first.close()
            second = EngineLink(endpoint)
            second.start()
            await until(lambda: second.is_ready)
            assert second.ready == first.ready
        second.close()


def test_private_endpoint_is_private_and_goes_away() -> None:
    """The folder has mode 0700 while in use and is removed afterwards."""
    with private_endpoint() as endpoint:
        folder = os.path.dirname(endpoint.removeprefix("ipc://"))
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)


def test_shared_endpoint_refuses_a_folder_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder that others can write in is not used."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    endpoint = shared_endpoint()
    assert endpoint == shared_endpoint()
    os.chmod(os.path.dirname(endpoint.removeprefix("ipc://")), 0o777)
    with pytest.raises(PermissionError, match="mode 0700"):
        shared_endpoint()


class Told:
    """A wire that keeps what is sent."""

    endpoint = "none"
    problem = ""

    def __init__(self) -> None:
        self.commands: list[api.Command] = []

    def start(self, user: WireUser) -> None:
        pass

    def send(self, data: bytes) -> bool:
        self.commands.append(api.decode_command(data))
        return True

    def check(self, *, forget_old: bool) -> None:
        pass

    def forget_old(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_an_engine_knows_its_gateway_before_a_session_is_opened() -> None:
    """It closes the sessions of the gateway before this one, and none of this one's. A gateway is
    the same in all its pings."""
    wire = Told()
    link = EngineLink(wire)

    class Opener(Listener):
        def engine_ready(self, ready: api.Ready) -> None:
            link.send(api.Open("s", ""))

    link.attach("s", Opener())
    model = api.ModelInfo("fake", 1, 1, 1, 1, 0.0)
    link.received(api.encode(api.Ready("engine 1", model)))
    link.connected()
    first, opened, again = wire.commands
    assert isinstance(first, api.Ping)
    assert isinstance(again, api.Ping)
    assert isinstance(opened, api.Open)
    assert first.gateway == again.gateway != ""
    other = Told()
    EngineLink(other).connected()
    (ping,) = other.commands
    assert isinstance(ping, api.Ping)
    assert ping.gateway != first.gateway
