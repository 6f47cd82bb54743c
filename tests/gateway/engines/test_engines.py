"""Where sessions go, without processes: wires that a test holds in its hand."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.engine_link import EngineLink, WireUser
from headstart.gateway.engines.engines import GONE_MAX, Engines, Member
from headstart.gateway.engines.metrics import EnginesCollector
from headstart.gateway.errors import ChildKeepsDying
from headstart.gateway.runtime.child_process import ChildProcess
from headstart.gateway.server.supervision import supervise
from tests.gateway.engines.test_totals import heartbeat
from tests.gateway.shell_fakes import until


class HandWire:
    """Keeps what is sent; the test says what comes."""

    endpoint, problem = "hand", ""

    def __init__(self) -> None:
        self.user: WireUser | None = None
        self.sent: list[api.Command] = []
        self.closed = False

    def start(self, user: WireUser) -> None:
        self.user = user

    def send(self, data: bytes) -> bool:
        self.sent.append(api.decode_command(data))
        return True

    def check(self, *, forget_old: bool) -> None: ...

    def forget_old(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def says(self, event: api.Event) -> None:
        assert self.user is not None
        self.user.received(api.encode(event))

    def ready(self, incarnation: str = "1") -> None:
        self.says(api.Ready(incarnation, api.ModelInfo("m", 1, 1, 1, 1, 1.0)))

    def of(self, kind: type[api.Command]) -> list[api.Command]:
        return [command for command in self.sent if isinstance(command, kind)]


class Listener:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def engine_event(self, event: api.Event) -> None:
        self.calls.append(type(event).__name__)

    def engine_lost(self) -> None:
        self.calls.append("lost")

    def engine_ready(self, ready: api.Ready) -> None:
        self.calls.append("ready")


class Rig:
    """Engines by name, with their wires."""

    def __init__(self, *names: str) -> None:
        self.wires = {name: HandWire() for name in names}
        self.engines = Engines(
            [Member(EngineLink(wire, name=name)) for name, wire in self.wires.items()]
        )
        self.engines.start()

    def open(self, session: str) -> Listener:
        listener = Listener()
        self.engines.attach(session, listener)
        return listener

    def lose(self, name: str) -> None:
        self.engines.members[name].link.lost("a test says so")


@pytest.fixture
async def two() -> Any:
    """Two engines that are ready."""
    rig = Rig("a", "b")
    for wire in rig.wires.values():
        wire.ready()
    yield rig
    rig.engines.close()


FULL: dict[str, Any] = {"kv_blocks_used": 9, "kv_blocks_total": 10, "level": api.Level.REFUSING}


async def test_a_full_engine_gets_no_sessions(two: Rig) -> None:
    """It says that it refuses some: new ones go to the other, and nowhere if both do."""
    two.wires["a"].says(heartbeat(**FULL))
    for number in range(3):
        two.open(f"s{number}")
        assert two.engines.engine_of(f"s{number}") == "b"
    room = [two.engines.has_room]
    two.wires["b"].says(heartbeat(**FULL))
    room.append(two.engines.has_room)
    two.wires["a"].says(heartbeat(**(FULL | {"level": api.Level.OFFLOADING})))
    room.append(two.engines.has_room)  # idle sessions can be put elsewhere
    assert room == [True, False, True]


async def test_sessions_for_which_there_is_no_room_wait(two: Rig) -> None:
    """Those of a lost engine, while the other one is full: told once that it is lost, and ready
    when there is room. What they send meanwhile goes nowhere."""
    first, second = two.open("s1"), two.open("s2")
    at = {name: two.engines.engine_of(name) for name in ("s1", "s2")}
    lost = at["s1"]
    other = at["s2"]
    assert lost is not None
    assert other is not None
    two.wires[other].says(heartbeat(**FULL))
    two.lose(lost)
    await asyncio.sleep(0)
    assert first.calls == ["lost"]
    assert two.engines.engine_of("s1") is None
    assert not two.engines.send(api.Open("s1", ""))
    two.wires[other].says(heartbeat())
    await asyncio.sleep(0)
    assert first.calls == ["lost", "ready"]
    assert two.engines.engine_of("s1") == other
    assert second.calls == []
    assert two.engines.moved == 1


async def test_an_engine_that_starts_again_at_once_gets_its_sessions_back(two: Rig) -> None:
    """Its new process speaks before the old one's end was noticed: each session is told both, in
    order and once."""
    two.open("s1")
    two.wires["a" if two.engines.engine_of("s1") == "b" else "b"].says(heartbeat(**FULL))
    name = two.engines.engine_of("s1")
    assert name is not None
    again = two.open("s2")
    assert two.engines.engine_of("s2") == name
    two.wires[name].ready("2")
    await asyncio.sleep(0)
    assert again.calls == ["lost", "ready"]
    assert two.engines.engine_of("s2") == name


async def test_a_session_that_ended_meanwhile_is_closed_at_the_engine_that_was_silent() -> None:
    """It was only silent, and still holds that session."""
    rig = Rig("a")
    wire = rig.wires["a"]
    wire.ready()
    rig.open("s1")
    rig.open("s2")
    rig.lose("a")
    await asyncio.sleep(0)
    rig.engines.detach("s1")
    wire.sent.clear()
    wire.says(heartbeat("1"))
    await asyncio.sleep(0)
    closed = {command.session for command in wire.of(api.Close) if isinstance(command, api.Close)}
    assert closed == {"s1", "s2"}
    assert rig.engines.engine_of("s2") == "a"
    rig.engines.close()


async def test_it_is_told_to_leave_when_its_last_session_is_gone(two: Rig) -> None:
    """Not before; and it may come back later, as a new process under its name."""
    for number in range(4):
        two.open(f"s{number}")
    wire, link = two.wires["a"], two.engines.members["a"].link
    held = list(link.sessions)
    wire.says(api.Draining())
    assert two.engines.members["a"].state == "draining"
    for session in held:
        assert wire.of(api.Leave) == []
        two.engines.detach(session)
    assert len(wire.of(api.Leave)) == 1
    two.lose("a")
    assert two.engines.members["a"].state == "drained"
    wire.ready("2")
    assert two.engines.members["a"].state == "ready"
    await asyncio.sleep(0)
    two.open("s9")
    assert two.engines.engine_of("s9") == "a"


async def test_an_engine_that_drains_leaves_although_it_was_lost_meanwhile(two: Rig) -> None:
    """Its sessions have gone elsewhere when it is heard again; nothing else would tell it."""
    for number in range(4):
        two.open(f"s{number}")
    wire = two.wires["a"]
    wire.says(api.Draining())
    two.lose("a")
    await asyncio.sleep(0)
    assert wire.of(api.Leave) == []
    wire.says(heartbeat("1"))
    assert len(wire.of(api.Leave)) == 1
    assert two.engines.members["a"].state == "drained"


async def test_an_engine_that_is_back_at_once_is_told_to_close_its_sessions(two: Rig) -> None:
    """Its connection broke and was made again before its sessions could go elsewhere: it still
    holds them, and they may go on at the other."""
    listeners = {name: two.open(name) for name in ("s1", "s2", "s3", "s4")}
    held = set(two.engines.members["a"].link.sessions)
    assert len(held) == 2
    two.lose("a")
    two.wires["a"].says(heartbeat("1"))
    closed = {c.session for c in two.wires["a"].of(api.Close) if isinstance(c, api.Close)}
    assert closed == held
    await asyncio.sleep(0)
    assert {name for name, session in listeners.items() if session.calls} == held
    assert all(listeners[name].calls == ["lost", "ready"] for name in held)


async def test_a_lost_engine_holds_nothing(two: Rig) -> None:
    """In the sums; what it had counted stays in them."""
    two.wires["a"].says(heartbeat("1", sessions=3, steps=5, level=api.Level.REFUSING))
    two.wires["b"].says(heartbeat("1", sessions=1, steps=2))
    two.lose("a")
    whole = two.engines.stats
    assert whole is not None
    assert (whole.sessions, whole.steps, whole.level) == (1, 7, api.Level.CALM)


async def test_engines_that_are_gone_are_forgotten() -> None:
    """The oldest of more than so many; what they had counted stays in the sum."""
    rig = Rig()
    for number in range(GONE_MAX + 2):
        wire = HandWire()
        rig.engines.joined(wire, f"e{number}")
        wire.ready()
        wire.says(heartbeat(str(number), steps=1))
        rig.lose(f"e{number}")
        rig.wires[f"e{number}"] = wire
    assert len(rig.engines.members) == GONE_MAX
    assert rig.wires["e0"].closed
    assert rig.engines.stats is not None
    assert rig.engines.stats.steps == GONE_MAX + 2
    rig.engines.close()


async def test_metrics_name_each_engine(two: Rig) -> None:
    """State, sessions, K/V and losses by engine."""
    two.open("s1")
    two.wires["a"].says(heartbeat(kv_blocks_used=1, kv_blocks_total=4))
    two.lose("b")
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in EnginesCollector(two.engines).collect()
        for sample in metric.samples
    }
    assert told["headstart_engine_state", "a", "ready"] == 1
    assert told["headstart_engine_state", "b", "lost"] == 1
    assert told["headstart_engine_state", "b", "ready"] == 0
    assert told["headstart_engine_kv_used_ratio", "a"] == 0.25
    assert told["headstart_engine_losses_total", "b"] == 1
    assert ("headstart_engine_kv_used_ratio", "b") not in told


# --- processes that cannot be kept running -------------------------------------------------------


def dying(name: str, code: int = 1) -> Member:
    link = EngineLink(HandWire(), name=name)
    argv = [sys.executable, "-c", f"raise SystemExit({code})"]
    return Member(link, ChildProcess(name, argv, on_exit=link.lost))


@pytest.mark.parametrize("code", [1, 2])
async def test_an_engine_that_keeps_dying_is_given_up_while_others_work(code: int) -> None:
    """Or refuses its settings (2): the others' sessions go on; its state tells why."""
    wire = HandWire()
    works = Member(EngineLink(wire, name="works"))
    broken = dying("broken", code)
    engines = Engines([works, broken])
    engines.start()
    wire.ready()
    supervising = asyncio.create_task(supervise(engines))
    await until(lambda: "given up" in broken.reason)
    assert engines.is_ready
    await supervising
    engines.close()


async def test_the_last_one_that_keeps_dying_ends_the_server() -> None:
    """With what it said last, as with a single engine."""
    engines = Engines([dying("one"), dying("two")])
    engines.start()
    with pytest.raises(ChildKeepsDying, match="before it was ready"):
        await supervise(engines)
    engines.close()
