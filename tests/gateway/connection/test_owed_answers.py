"""No answer that is owed gets lost on its way: a client's bytes in, its session's events out.

The gateway from the socket's protocol to the session core, on virtual time, without a network. The
bytes are cut anywhere, come in any company and at any time; parsing and decoding take any time or
fail; the engine falls behind and is lost. Every message is processed once and in order, and
answered; or the connection is closed, with a reason.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets import Opcode

from headstart.engine import api
from headstart.gateway.config import load
from headstart.gateway.connection import runner as runners
from headstart.gateway.connection.runner import LONG_CHARS
from headstart.gateway.connection.unread import Wait
from headstart.gateway.server.app import Gateway, build_app
from headstart.gateway.session.actions import Action, ContinueLater, Decode, Send, SendToEngine
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.transport.websocket.channel import RealtimeProtocol
from headstart.gateway.video.decode import Outcome
from headstart.gateway.video.decode_pool import DECODERS
from tests import virtual_loop
from tests.gateway.fake_socket import Client, frame
from tests.gateway.shell_fakes import EchoSession
from tests.virtual_loop import VirtualLoop

KINDS = ("say", "sound", "long", "pieces", "picture", "hear", "fragments", "ping", "slow")
PATIENCE_S = 400.0


class NumberedSession(EchoSession):
    """Answers each numbered message, whatever has to be done for it first."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.done: list[int] = []
        self.number = 0
        self.works: Callable[[float], None] = lambda _: None
        self.told_sample = 0

    def answered(self, number: int) -> list[Action]:
        self.done.append(number)
        return [Send({"type": "answer", "number": number})]

    def prepare(self, text: str) -> Callable[[int], list[Action]]:
        if text.startswith("unparsable"):
            raise ZeroDivisionError("a bug in the parser")
        return functools.partial(self.receive_text, text)

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        word, _, rest = text.strip().partition(" ")
        number = int(rest.split()[0])
        match word:
            case "pieces":
                self.pieces, self.number = 3, number
                return [ContinueLater()]
            case "picture":
                self.number = number
                return [Decode(number, (), ordered=True)]
            case "hear":  # 20 s of sound for the engine
                start, self.told_sample = self.told_sample, self.told_sample + 320_000
                ref = api.TurnRef(1)
                audio = api.Audio(self.session_id, ref, start, bytes(640_000), now_ns)
                return [SendToEngine(audio), *self.answered(number)]
            case "slow":
                self.works(0.02)
            case "bug":
                raise ZeroDivisionError("a bug in the session core")
        return self.answered(number)

    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None:
        return self.receive_text(text, now_ns) if text.startswith("sound") else None

    def more(self, now_ns: int) -> list[Action]:
        self.pieces -= 1
        return [ContinueLater()] if self.pieces else self.answered(self.number)

    def decoded(self, request_id: int, outcome: Outcome, now_ns: int) -> list[Action]:
        assert request_id == self.number
        return self.answered(request_id)


def bytes_of(kind: str, number: int) -> bytes:
    match kind:
        case "ping":
            return frame(str(number), Opcode.PING) + frame(f"say {number}")
        case "long":
            return frame(f"say {number} " + "x" * LONG_CHARS)
        case "fragments":
            first = frame(f"say {number}", fin=False)
            return first + frame("", Opcode.CONT, fin=False) + frame(" ", Opcode.CONT)
        case _:
            return frame(f"{kind} {number}")


class Rig:
    """A gateway, its one session, and the engine that a test plays."""

    def __init__(self, loop: VirtualLoop, patch: pytest.MonkeyPatch, delays: Any) -> None:
        self.loop, self.delays = loop, delays
        self.sessions: list[NumberedSession] = []
        self.computed_s = 0.0
        self.listener: Any = None
        clock = SimpleNamespace(
            perf_counter=lambda: loop.time() + self.computed_s, monotonic_ns=loop.time_ns
        )
        for module in (
            "connection.runner",
            "transport.websocket.channel",
            "transport.websocket.inbox",
        ):
            patch.setattr(f"headstart.gateway.{module}.time", clock)
        patch.setattr(runners, "PARSER", SimpleNamespace(run=self._parse))
        patch.setattr(DECODERS, "run", self._decode)
        link = SimpleNamespace(
            is_ready=True,
            has_room=True,
            ready=None,
            send=lambda _: True,
            attach=self._attach,
            detach=lambda _: 0,
        )
        settings = load(flags={"port": 0, "resume_s": 30})
        self.gateway = Gateway(settings, link, self._make, Metrics().page)  # type: ignore[arg-type]
        # The default of an argument was there before the clock was.
        new = functools.partial(runners.SessionRunner, now_ns=loop.time_ns)
        patch.setattr("headstart.gateway.server.app.SessionRunner", new)
        self.config = uvicorn.Config(
            build_app(self.gateway), ws=RealtimeProtocol, ws_ping_interval=None, log_config=None
        )
        self.config.load()

    def _attach(self, _: str, listener: Any) -> None:
        self.listener = listener

    def _make(self, *arguments: Any) -> NumberedSession:
        session = NumberedSession(*arguments)
        session.works = self._compute
        self.sessions.append(session)
        return session

    def _compute(self, seconds: float) -> None:
        self.computed_s += seconds

    async def _parse(self, work: Callable[[str], Any], text: str) -> Any:
        await asyncio.sleep(self.delays())
        return work(text)

    async def _decode(self, *_: Any) -> Any:
        await asyncio.sleep(self.delays())
        return ()

    @property
    def session(self) -> NumberedSession:
        return self.sessions[0]

    def connect(self) -> Client:
        return Client(self.config, self.loop)


def answers(client: Client) -> list[int]:
    return [event["number"] for event in client.events if event["type"] == "answer"]


async def settled(condition: Callable[[], Any]) -> bool:
    """Within the patience that a client has, in virtual time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    while not condition() and loop.time() < end_s:
        await asyncio.sleep(0.05)
    return bool(condition())


moments = st.sampled_from((0.0, 0.0, 0.001, 0.3, 5.0, 25.0))


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=25),
    data=st.data(),
)
def test_every_message_is_answered_once_and_in_order(kinds: list[str], data: st.DataObject) -> None:
    """However its bytes are cut and whatever it waits for. Sound that the engine never says it has
    heard makes the reader slow, and loses nothing."""

    async def talk(loop: VirtualLoop, patch: pytest.MonkeyPatch) -> None:
        rig = Rig(loop, patch, lambda: data.draw(moments))
        client = rig.connect()
        stream = b"".join(bytes_of(kind, number) for number, kind in enumerate(kinds))
        cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
        edges = [0, *sorted(cuts), len(stream)]
        for start, end in itertools.pairwise(edges):
            if data.draw(st.booleans()):
                await asyncio.sleep(data.draw(moments))
            client.transport.feed(stream[start:end])
            if rig.listener is not None and data.draw(st.booleans()):
                lost = data.draw(st.booleans())
                heard = api.Heard("s", api.TurnRef(1), "item", "", 0, True)
                rig.listener.engine_lost() if lost else rig.listener.engine_event(heard)
        await settled(lambda: len(answers(client)) >= len(kinds))
        wanted = list(range(len(kinds)))
        assert answers(client) == wanted
        assert rig.session.done == wanted
        pings = [str(number).encode() for number, kind in enumerate(kinds) if kind == "ping"]
        assert client.pongs == pings
        assert client.closed is None
        client.transport.lose()
        assert await settled(lambda: not rig.gateway.runners)

    with pytest.MonkeyPatch.context() as patch:
        virtual_loop.run(lambda loop: talk(loop, patch))


@pytest.mark.parametrize("first", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("next_frame", [b"", b"another"])
def test_the_rest_of_a_frame_is_no_frame(first: int, next_frame: bytes) -> None:
    """Of a frame that comes in two reads, the second may look like one itself: the mask is the
    client's to choose. Nor is a frame behind a begun one taken for the whole of it."""

    async def talk(loop: VirtualLoop, patch: pytest.MonkeyPatch) -> None:
        rig = Rig(loop, patch, lambda: 0.0)
        client = rig.connect()
        await asyncio.sleep(0.1)
        text = b"say 0     "
        mask = bytes([0x81, 0x80 + len(text) - 2, 0x81, 0x80 + len(text) - 4])
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(text))
        data = bytes([0x81, 0x80 + len(text)]) + mask + masked
        client.transport.feed(data[:first])
        await asyncio.sleep(0.1)
        client.transport.feed(data[first:])
        if next_frame:
            client.transport.feed(frame("say 1"))
        wanted = [0, 1] if next_frame else [0]
        assert await settled(lambda: answers(client) == wanted)
        client.transport.lose()

    with pytest.MonkeyPatch.context() as patch:
        virtual_loop.run(lambda loop: talk(loop, patch))


@settings(max_examples=30)
@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=8),
    fault=st.sampled_from(("bug", "unparsable", "undecodable")),
    data=st.data(),
)
def test_a_fault_ends_the_connection(kinds: list[str], fault: str, data: st.DataObject) -> None:
    """What came before it is answered, what comes behind it is not; nobody is left waiting."""

    async def talk(loop: VirtualLoop, patch: pytest.MonkeyPatch) -> None:
        rig = Rig(loop, patch, lambda: data.draw(moments))
        client = rig.connect()
        for number, kind in enumerate(kinds):
            client.transport.feed(bytes_of(kind, number))
            await asyncio.sleep(data.draw(moments))
        await settled(lambda: len(answers(client)) == len(kinds))
        if fault == "undecodable":

            async def fails(*_: Any) -> Any:
                raise ZeroDivisionError("a bug in the decoder")

            patch.setattr(DECODERS, "run", fails)
            client.transport.feed(frame("picture 99"))
        else:
            padding = " " + "x" * LONG_CHARS if fault == "unparsable" else ""
            client.transport.feed(frame(f"{fault} 99{padding}"))
        client.transport.feed(frame("say 100"))
        assert await settled(lambda: client.transport.is_lost and not rig.gateway.runners)
        assert answers(client) == list(range(len(kinds)))
        assert client.closed == (1011, "internal error")

    with pytest.MonkeyPatch.context() as patch:
        virtual_loop.run(lambda loop: talk(loop, patch))


# --- a reader that stands still -------------------------------------------------------------------


def ended(message: str, prepare: Callable[[Rig], None]) -> tuple[Client, Rig, float]:
    """The connection of a client whose message is never answered, and how long that took."""

    async def talk(loop: VirtualLoop, patch: pytest.MonkeyPatch) -> tuple[Client, Rig, float]:
        rig = Rig(loop, patch, lambda: 0.0)
        client = rig.connect()
        client.transport.feed(frame("say 0"))
        assert await settled(lambda: answers(client) == [0])
        prepare(rig)
        began_s = loop.time()
        client.transport.feed(frame(message))
        assert await settled(lambda: client.closed)
        took_s = loop.time() - began_s
        assert await settled(lambda: client.transport.is_lost and not rig.gateway.runners)
        return client, rig, took_s

    with pytest.MonkeyPatch.context() as patch:
        result: tuple[Client, Rig, float] = virtual_loop.run(lambda loop: talk(loop, patch))
        return result


def no_wake_up(rig: Rig) -> None:
    """The reader's future is lost: what is put for it wakes nobody."""
    reader = next(iter(rig.gateway.registry)).resume_channel._connection._receive.__self__._inbox  # type: ignore[union-attr]
    reader._reader = None


def no_parser(rig: Rig) -> None:
    """Its thread has died."""
    rig.delays = lambda: 1e6


@pytest.mark.parametrize(
    ("message", "prepare", "most_s", "reason"),
    [
        ("say 1", no_wake_up, Wait.MESSAGE.most_s, "a message was not read for 20 s"),
        (
            "say 1 " + "x" * LONG_CHARS,
            no_parser,
            Wait.PARSER.most_s,
            "the reader waited 60 s for a long message to be parsed",
        ),
        (
            "picture 1",
            no_parser,
            Wait.PICTURES.most_s,
            "the reader waited 300 s for pictures to be decoded",
        ),
    ],
    ids=["wake-up", "parser", "pictures"],
)
def test_a_reader_that_stands_still_ends_its_session(
    message: str,
    prepare: Callable[[Rig], None],
    most_s: float,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What should never happen is logged, counted, and told to the client, which would wait for
    ever else."""
    client, rig, took_s = ended(message, prepare)
    assert client.closed == (1011, f"internal error: {reason}")
    assert took_s == pytest.approx(most_s, abs=1.0)
    assert rig.gateway.sessions_stuck == 1
    assert reason in caplog.text


# --- a connection that breaks ---------------------------------------------------------------------


@given(losses=st.lists(st.integers(0, 40), max_size=5), data=st.data())
def test_who_comes_back_and_asks_again_is_answered(losses: list[int], data: st.DataObject) -> None:
    """The connection breaks at any time, with a question or an answer on its way. A client that
    asks again what was not answered when it is up to date gets every answer, in order."""

    async def talk(loop: VirtualLoop, patch: pytest.MonkeyPatch) -> None:
        rig = Rig(loop, patch, lambda: 0.0)
        client = rig.connect()
        assert await settled(lambda: client.events)
        rig.session.resumable = True
        token = rig.session.token
        seen: list[int] = []

        def note() -> list[int]:
            return [*seen, *answers(client)]

        step = 0
        for question in range(8):
            while question not in note():
                client.transport.feed(frame(f"say {question}"))
                for _ in range(data.draw(st.integers(0, 6))):
                    step += 1
                    if step in losses:
                        client.transport.lose()
                    await asyncio.sleep(0)
                answered = await settled(
                    lambda: question in note() or client.transport.is_lost  # noqa: B023
                )
                assert answered, "the answer is owed and does not come"
                if client.transport.is_lost and question not in note():
                    seen = note()
                    await asyncio.sleep(0.1)
                    headers = f"headstart-resume: {token}\r\n".encode()
                    client = Client(rig.config, loop, headers)
                    assert await settled(lambda: client.events)  # noqa: B023
                    assert client.closed is None
        assert sorted(set(note())) == list(range(8))
        client.transport.lose()
        await settled(lambda: not rig.gateway.runners)

    with pytest.MonkeyPatch.context() as patch:
        virtual_loop.run(lambda loop: talk(loop, patch))
