import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.connection.flow_control import PICTURES_BEHIND_BYTES
from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.connection.outbound import Bounds
from headstart.gateway.connection.runner import CREDIT_WAIT_S, SessionRunner
from headstart.gateway.session.actions import Action, Decode, Hangup, SendToEngine, SendToTts
from headstart.gateway.transport.webrtc.audio_sender import AudioSender
from headstart.gateway.tts.messages import Speak
from headstart.gateway.video.decode import Outcome
from tests.gateway.shell_fakes import EchoSession, until

READY = api.Ready("engine 1", api.ModelInfo("fake", 8192, 1024, 1 << 28, 0, 0.0))


class ListChannel:
    """Keeps what is sent; after `messages` nothing comes until `gone`."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.sent: list[str] = []
        self.gone = asyncio.Event()

    async def receive(self, try_inline: TryInline | None = None) -> str | None:
        while not self.messages:
            await self.gone.wait()
            if not self.messages:
                return None
        return self.messages.pop(0)

    async def send(self, text: str) -> bool:
        self.sent.append(json.loads(text)["type"])
        return True

    unread_since_ns: int | None = None

    def try_send(self, data: bytes) -> bool:
        return False

    async def close(self, hangup: Hangup) -> None:
        self.gone.set()


async def types_sent(*before_start: str) -> list[str]:
    """What a session sends when these happen between its slot and its start."""
    channel = ListChannel()
    runner = SessionRunner("s", channel, EchoSession("s", True, "m"), lambda _: True, Bounds())
    for event in before_start:
        if event == "ready":
            runner.engine_ready(READY)
        else:
            runner.engine_lost()
    running = asyncio.create_task(runner.run())
    for _ in range(50):  # until nobody has anything left to do
        await asyncio.sleep(0)
    channel.gone.set()
    await running
    return [kind for kind in channel.sent if kind != "lost"]


async def test_an_engine_that_comes_before_the_session_begins() -> None:
    """A call takes its slot before it has begun: the engine is told of the session once, after
    `session.created`, and not at all if it is lost again."""
    assert await types_sent("ready") == ["session.created", "ready"]
    assert await types_sent("ready", "lost") == ["session.created"]
    assert await types_sent() == ["session.created"]


class PicturedSession(EchoSession):
    """The first message brings pictures; once they are decoded there are two pieces of work."""

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        if text == "pictures":
            return [Decode(1, (), ordered=True)]
        return super().receive_text(text, now_ns)

    def decoded(self, request_id: int, outcome: Outcome, now_ns: int) -> list[Action]:
        return super().receive_text("pieces 2", now_ns)


async def test_what_follows_from_pictures_is_done_before_the_next_message() -> None:
    """All pieces of it, too."""
    channel = ListChannel("pictures", "next")
    runner = SessionRunner("s", channel, PicturedSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(runner.run())
    await until(lambda: "echo" in channel.sent)
    channel.gone.set()
    await running
    assert channel.sent == ["session.created", "piece", "piece", "echo"]


class OfferingChannel(ListChannel):
    """Offers what is put into `offered` to whoever waits."""

    def __init__(self) -> None:
        super().__init__()
        self.try_inline: TryInline | None = None
        self.refused = asyncio.Queue[str]()

    async def receive(self, try_inline: TryInline | None = None) -> str | None:
        self.try_inline = try_inline
        return await self.refused.get() or None

    def offer(self, text: str) -> bool:
        assert self.try_inline is not None
        return self.try_inline(text)


class HearingSession(EchoSession):
    """Sound is what begins with "sound"; "sound N" tells the engine of N ms of it."""

    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None:
        word, _, rest = text.partition(" ")
        if word != "sound":
            return None
        return self.receive_text(rest, now_ns)


@contextlib.asynccontextmanager
async def hearing() -> AsyncIterator[OfferingChannel]:
    """A runner that waits for its client."""
    channel = OfferingChannel()
    runner = SessionRunner("s", channel, HearingSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(runner.run())
    await until(lambda: channel.try_inline)
    yield channel
    channel.refused.put_nowait("")
    await running


async def test_sound_is_taken_at_once() -> None:
    """While the reader waits; all else is read."""
    async with hearing() as channel:
        assert channel.offer("sound a packet")
        assert not channel.offer("bye")
        await until(lambda: "echo" in channel.sent)
        assert channel.sent == ["session.created", "echo"]


async def test_who_has_had_more_than_its_share_is_read_no_further() -> None:
    """The reader gets the next packet, and stands back behind it."""
    async with hearing() as channel:
        assert channel.offer("sound work 80")
        assert not channel.offer("sound work 80")


async def test_sound_that_the_engine_is_behind_of_is_not_taken_at_once() -> None:
    """The reader is woken, and waits."""
    async with hearing() as channel:
        assert channel.offer("sound hear 31000")
        assert not channel.offer("sound hear 40")


@pytest.mark.parametrize("turns", range(6))
async def test_an_end_that_comes_with_room(turns: int) -> None:
    """The reader waits for the engine, which catches up as the session is ended: it is over.
    `turns`: of the loop, between the two."""
    channel = ListChannel("hear 31000")
    runner = SessionRunner("s", channel, EchoSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(runner.run())
    await until(lambda: runner._flow.must_wait)
    runner._room.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=10)
    channel.gone.set()
    assert done


async def test_a_bug_in_hearing_ends_its_session_only() -> None:
    """Nothing reaches the socket that the sound came from; the session is hung up, and takes no
    more."""
    async with hearing() as channel:
        assert channel.offer("sound bug")
        assert not channel.offer("sound a packet")
        await until(channel.gone.is_set)


class CallSession(EchoSession):
    """Tells the engine of a track's sound, as one long utterance, and of each picture."""

    def receive_audio(self, pcm24k: bytes, arrival: Arrival | None, now_ns: int) -> list[Action]:
        sound = bytes(len(pcm24k) * 2 // 3)
        return [SendToEngine(api.Audio(self.session_id, api.TurnRef(1), 0, sound, now_ns))]

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        item = api.Item("i", api.Role.USER, (api.Image(1, 1, bytes(PICTURES_BEHIND_BYTES)),))
        if text == "picture":
            return [
                SendToEngine(api.AddItem(self.session_id, item)),
                *super().receive_text(text, now_ns),
            ]
        return super().receive_text(text, now_ns)


class Engine:
    """A link that takes commands while it is up."""

    def __init__(self) -> None:
        self.up = False
        self.told: list[api.Command] = []

    def tell(self, command: api.Command) -> bool:
        if self.up:
            self.told.append(command)
        return self.up

    @property
    def heard_s(self) -> float:
        sounds = [c for c in self.told if isinstance(c, api.Audio)]
        return sum(sound.samples for sound in sounds) / api.SAMPLE_RATE_HZ


SECOND = bytes(48_000)


def test_a_call_that_talks_while_the_engine_loads_is_heard_when_it_is_ready() -> None:
    """Two minutes of speech while there is none, in virtual time; and again when it is lost with
    half a minute outstanding, and back. What is told to the engine is bounded as before."""
    engine, now_ns = Engine(), 0
    session = CallSession("s", False, "m")
    runner = SessionRunner("s", ListChannel(), session, engine.tell, Bounds(), lambda: now_ns)
    runner._started = True
    for _ in range(2):
        for _ in range(120):
            now_ns += 10**9
            assert runner.hear(SECOND, None)
        assert engine.heard_s == 0
        engine.up = True
        runner.engine_ready(READY)
        taken = sum(runner.hear(SECOND, None) for _ in range(60))
        assert taken == engine.heard_s == 31  # the last one may overdraw
        engine.up = False
        engine.told.clear()
        runner.engine_lost()


async def test_pictures_told_to_no_engine_hold_nobody_up() -> None:
    """Nor do those that a lost engine never looked at: the reader that waits for that is woken."""
    engine = Engine()
    channel = ListChannel(*["picture"] * 10)
    runner = SessionRunner("s", channel, CallSession("s", False, "m"), engine.tell, Bounds())
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(CREDIT_WAIT_S / 2):
        await until(lambda: channel.sent.count("echo") == 10)
        engine.up = True
        runner.engine_ready(READY)
        channel.messages += ["picture"] * 10
        channel.gone.set()
        await until(lambda: runner._flow.must_wait)
        assert channel.sent.count("echo") == 12
        engine.up = False
        runner.engine_lost()
        await running
    assert channel.sent.count("echo") == 20


class SpeakingSession(EchoSession):
    """Has two clauses spoken."""

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        speaks = [SendToTts(Speak(self.session_id, 1, clause, text)) for clause in (0, 1)]
        return [*speaks, *super().receive_text(text, now_ns)]


async def test_a_clause_that_no_voice_takes_is_over() -> None:
    """It has failed, told behind what came with it: the answer must not wait for it."""
    channel = ListChannel("hello")
    runner = SessionRunner("s", channel, SpeakingSession("s", True, "m"), lambda _: True, Bounds())
    running = asyncio.create_task(runner.run())
    await until(lambda: "ClauseDone" in channel.sent)
    channel.gone.set()
    await running
    assert channel.sent == ["session.created", "echo", "ClauseDone", "ClauseDone"]


async def test_the_session_knows_who_plays() -> None:
    """Also after a call was resumed over a WebSocket, whose client plays by itself."""
    session, player = EchoSession("s", True, "m"), AudioSender()
    runner = SessionRunner("s", ListChannel(), session, lambda _: True, Bounds(), player=player)
    plays = [session.server_plays]
    runner.resumed(None, 0)
    plays.append(session.server_plays)
    assert plays == [True, False]
    assert not SessionRunner("t", ListChannel(), session, lambda _: True, Bounds()).player
