"""One session of the soak: a random sequence of acts, drawn from a seed, and one of several ends.

An act is something that people, clients or networks do. Each leaves the session in a state from
which it can go on (or raises `ConnectionLost`), and reports broken promises: a typed question gets
an answer, an invalid event gets its error, a session that is closed is told why.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from headstart.benchmarks.soak import sounds
from headstart.benchmarks.soak.canary import Canaries, Secret
from headstart.benchmarks.soak.connections import (
    CallConnection,
    Connection,
    ConnectionLost,
    Event,
    SocketConnection,
)
from headstart.benchmarks.soak.invalid_events import UNREADABLE, invalid_events, item_id
from headstart.benchmarks.soak.sounds import PACKET_MS, Packet
from headstart.benchmarks.soak.tally import Tally
from headstart.benchmarks.soak.wall_clock import WallClock
from headstart.gateway.protocol.extensions import GatewayOptions

ANSWER_WAIT_S = 120.0
"""Twenty sessions on two cores answer slowly; one that waits longer than this was forgotten."""
ERROR_WAIT_S = 60.0
LISTEN_FAST_S = (20, 240)
"""Weight of listening, which takes most of a conversation's time."""
MAX_OUTPUT_TOKENS = 24
FLOOD_EVENTS = 300
DEAF_EVENTS = 400
NOISE_SIDE_PX = 120
"""A noise picture is echoed with some 58 KiB, so 400 of them exceed the send buffer."""
GATEWAY_EVENTS = ["latency", "chunks", "hearing", "endpoint", "engine", "voice"]
CAN_RESUME = "resume" in GatewayOptions.model_fields
COMPLETE = ("completed", "incomplete")  # incomplete: it reached its length limit
SHED = (1013, 1006)  # a reader that is cut off may not receive the reason


@dataclass
class World:
    """State shared by all visits. `wall_clock`: the server's; `live`: audio is in real time."""

    url: str
    model: str
    canaries: Canaries
    tally: Tally
    wall_clock: WallClock | None = None
    live: bool = False
    listen_live_s: tuple[int, int] = (5, 40)
    noise_picture: str = field(default_factory=lambda: sounds.noise_picture(NOISE_SIDE_PX))


class Visit:
    """A session with its canary words; `acts` may be called in any order.

    `heard_s`: seconds of audio sent so far. `may_be_closed`: by the server, for the last act.
    """

    def __init__(self, world: World, line: Connection, secret: Secret, rng: random.Random) -> None:
        self._world, self._line, self._secret, self._rng = world, line, secret, rng
        self.heard_s = 0.0
        self.may_be_closed = False
        self._tally = world.tally
        self._items = 0

    @property
    def acts(self) -> dict[str, tuple[int, Callable[[], Awaitable[None]]]]:
        """Acts by name, with their weights."""
        shared: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "listen": (6, self.listen),
            "speak": (5, self.speak),
            "type": (6, self.type),
            "interrupt": (4, self.interrupt),
            "show": (1, self.show),
            "lie": (3, self.lie),
            "flood": (1, self.flood),
            "mute": (1, self.mute),
        }
        if not isinstance(self._line, SocketConnection):
            return shared
        shared["stop_reading"] = (1, self.stop_reading)
        return shared | ({"come_back": (2, self.come_back)} if CAN_RESUME else {})

    async def introduce(self) -> None:
        """Send settings with the visit's code in the instructions."""
        session: Event = {
            "type": "realtime",
            "instructions": f"Be brief. Your name is {self._secret.code}.",
            "output_modalities": ["text"],
            "max_output_tokens": MAX_OUTPUT_TOKENS,
            "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        }
        if self._rng.random() < 0.8:
            session["gateway"] = {"events": GATEWAY_EVENTS}
        if CAN_RESUME:
            session["gateway"] = session.get("gateway", {}) | {"resume": True}
        await self._ask({"type": "session.update", "session": session}, "session.updated")

    # --- what people do --------------------------------------------------------------------------

    async def listen(self) -> None:
        """Send no speech: room noise, or silence."""
        fast = isinstance(self._line, SocketConnection) and not self._world.live
        low_s, high_s = LISTEN_FAST_S if fast else self._world.listen_live_s
        room = sounds.room() if self._rng.random() < 0.5 else sounds.silence()
        count = self._rng.randint(low_s, high_s) * 1000 // PACKET_MS
        await self._play((room * (count // len(room) + 1))[:count])

    async def speak(self) -> None:
        """Ask a question by voice, or send part of a long speech; an answer may come."""
        if self._rng.random() < 0.7:
            speech = sounds.clip(self._rng.choice(sounds.SPEECH))
        else:
            whole = sounds.clip(sounds.MONOLOGUE)
            at = self._rng.randrange(len(whole) - 60)
            speech = whole[at : at + self._rng.randint(10, 60)]
        async with self._line.inbox.expecting(_of("response.done")) as done:
            await self._play([*speech, *sounds.silence(), *sounds.silence()])
            try:
                async with asyncio.timeout(10.0):
                    await done
            except TimeoutError:
                self._tally.saw["speech without an answer"] += 1
        await self._settle()

    async def type(self) -> None:
        """Type a secret and ask for it."""
        phrase, code = self._secret.phrase, self._secret.code
        await self._say(f"My secret word is {phrase}. My number is {code}.")
        await self._say("What is my secret word?")
        await self._respond()

    async def interrupt(self) -> None:
        """Cut off an answer by a cancel, by speech, or by a second question."""
        async with self.long_answer(ANSWER_WAIT_S):
            match self._rng.randrange(3):
                case 0:
                    await self._send({"type": "response.cancel"})
                case 1:
                    await self._play([*sounds.clip(sounds.SPEECH[0]), *sounds.silence()])
                case _:
                    await self._say("Stop.")
                    await self._send({"type": "response.create"})

    @contextlib.asynccontextmanager
    async def long_answer(self, wait_s: float) -> AsyncIterator[None]:
        """Run the body while an answer is being given, then wait for its end."""
        await self._settle()
        await self._say(f"My secret word is {self._secret.phrase}. Tell me a very long story.")
        inbox, since_s = self._line.inbox, time.monotonic()
        async with inbox.expecting(_begun) as begun, inbox.expecting(_of("response.done")) as done:
            await self._send({"type": "response.create"})
            await self._await(begun, ANSWER_WAIT_S, "an answer's beginning", since_s)
            yield
            await self._await(done, wait_s, "an interrupted answer's end", since_s)
        await self._settle()

    async def is_answered(self) -> bool:
        """Type a question; returns whether it was answered to its end."""
        await self._say(f"My secret word is {self._secret.phrase}. What is my secret word?")
        done = await self._respond()
        return done is not None and done.get("response", {}).get("status") in COMPLETE

    async def show(self) -> None:
        """Show the picture of the cat."""
        self._secret.shows_the_cat()
        picture = {"type": "input_image", "image_url": sounds.cat()}
        await self._add([picture, _text("What do you see in this picture?")])
        await self._respond()

    # --- faults of clients and networks ----------------------------------------------------------

    async def lie(self) -> None:
        """Send invalid events of every kind; each gets its error, and nothing else happens."""
        stranger = self._world.canaries.somebody()
        for event in invalid_events(self._rng, self._secret, stranger)[: self._rng.randint(3, 12)]:
            what = f"the error for {str(event)[:200]}"
            await self._expect(event, _error_for(event["event_id"]), ERROR_WAIT_S, what)
        unreadable = self._rng.choice(UNREADABLE)
        await self._expect(unreadable, _of("error"), ERROR_WAIT_S, f"the error for {unreadable!r}")

    async def flood(self) -> None:
        """Send far more events than any client would, at once; then a question must be answered."""
        tiny = sounds.append_event(bytes(48))
        for number in range(FLOOD_EVENTS):
            match self._rng.randrange(5):
                case 0:
                    update = {"type": "realtime", "instructions": f"Be brief. {number}"}
                    await self._send({"type": "session.update", "session": update})
                case 1:
                    await self._send({"type": "response.create"})
                case 2:
                    await self._send({"type": "response.cancel"})
                case _:
                    await self._send(tiny)
        await self._barrier()
        await self._settle()
        await self.type()

    async def mute(self) -> None:
        """Stop sending audio in mid-word, for the rest of the session."""
        speech = sounds.clip(sounds.SPEECH[1])
        await self._play(speech[: len(speech) // 2])
        await self._line.rest(self._rng.uniform(1.0, 4.0))
        await self._settle()

    async def stop_reading(self) -> None:
        """Ask for megabytes and read none: the server must close this session and say why."""
        assert isinstance(self._line, SocketConnection)
        self.may_be_closed = True
        picture = {"type": "input_image", "image_url": self._world.noise_picture}
        wanted = await self._add([picture])
        since_s = time.monotonic()
        try:
            deaf = asyncio.create_task(self._line.deaf(3.0))
            try:
                for _ in range(DEAF_EVENTS):
                    await self._send({"type": "conversation.item.retrieve", "item_id": wanted})
            finally:
                await deaf
            await self._barrier()
            self.may_be_closed = False
        except ConnectionLost as closed:
            if closed.code not in SHED:
                self._tally.complain(f"a slow reader was closed with {closed.code}", since_s)
            self._tally.saw["slow reader shed"] += 1
            raise

    async def come_back(self) -> None:
        """Break the connection in mid-answer, and resume with its token over another one; the end
        of the answer must be reported there."""
        assert isinstance(self._line, SocketConnection)
        since_s = time.monotonic()
        async with (
            self.long_answer(ANSWER_WAIT_S),
            self._line.inbox.expecting(_of("gateway.session.resumed")) as resumed,
        ):
            await self._line.come_back(self._rng.uniform(0.0, 1.0))
            await self._await(resumed, ERROR_WAIT_S, "a session that comes back", since_s)
        await self.type()

    # --- parts -----------------------------------------------------------------------------------

    async def _send(self, event: Event | str | bytes) -> None:
        await self._line.send(event)

    async def _play(self, packets: list[Packet]) -> None:
        await self._line.play(packets)
        seconds = len(packets) * PACKET_MS / 1000
        self.heard_s += seconds
        self._tally.heard_s += seconds

    async def _say(self, text: str) -> str:
        return await self._add([_text(text)])

    async def _add(self, content: list[Event]) -> str:
        """Add a user's item that the server acknowledges; returns its id."""
        self._items += 1
        name = item_id(self._secret.code, self._items)
        item = {"type": "message", "role": "user", "id": name, "content": content}
        event = {"type": "conversation.item.create", "item": item}
        await self._expect(event, _item_done(name), ERROR_WAIT_S, "an item's arrival")
        return name

    async def _respond(self) -> Event | None:
        """Ask for an answer; wait for its end, or for the error instead."""
        await self._settle()
        name = f"ask_{self._secret.code}_{self._rng.getrandbits(40):x}"
        event = {"type": "response.create", "event_id": name}
        done = await self._expect(event, _answer_or_error(name), ANSWER_WAIT_S, "an answer")
        kind = "nothing" if done is None else done["type"]
        self._tally.saw[f"typed question: {kind}"] += 1
        return done

    async def _settle(self) -> None:
        """Wait until no answer is running."""
        since_s = time.monotonic()
        inbox = self._line.inbox
        while inbox.answering:
            async with inbox.expecting(_of("response.done")) as done:
                if await self._await(done, ANSWER_WAIT_S, "an answer's end", since_s) is None:
                    inbox.answering.clear()

    async def _barrier(self) -> None:
        """Wait until the server has read everything sent so far."""
        name = f"fence_{self._secret.code}_{self._rng.getrandbits(40):x}"
        event = {"type": "conversation.item.delete", "item_id": "fence", "event_id": name}
        await self._expect(event, _error_for(name), ANSWER_WAIT_S, "the end of what was sent")

    async def _ask(self, event: Event, kind: str) -> None:
        await self._expect(event, _of(kind), ERROR_WAIT_S, kind)

    async def _expect(
        self, event: Event | str, wanted: Callable[[Event], bool], wait_s: float, what: str
    ) -> Event | None:
        since_s = time.monotonic()
        async with self._line.inbox.expecting(wanted) as future:
            await self._send(event)
            return await self._await(future, wait_s, what, since_s)

    async def _await(
        self, future: asyncio.Future[Event], wait_s: float, what: str, since_s: float
    ) -> Event | None:
        """The event, or None and a complaint if it does not come. Raises `ConnectionLost`."""
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(future)
        except TimeoutError:
            self._tally.complain(f"{what} did not come in {wait_s:.0f} s", since_s)
            return None


# --- endings --------------------------------------------------------------------------------------


async def part(visit: Visit, line: Connection, rng: random.Random, world: World) -> None:
    """End the conversation in one of several ways, most of them abrupt."""
    ways = ["goodbye", "drop", "drop in mid-answer", "drop in mid-word"]
    ways += ["hang up"] if isinstance(line, CallConnection) else ["huge message"]
    way = rng.choice(ways)
    world.tally.did[f"end: {way}"] += 1
    match way:
        case "drop in mid-answer":
            await line.send({"type": "response.create"})
        case "drop in mid-word":
            await line.play(sounds.clip(sounds.SPEECH[0])[:8])
        case "huge message":
            await _too_large(line, world)
        case "hang up":
            assert isinstance(line, CallConnection)
            await line.hang_up(world.url)
    await (line.goodbye() if way == "goodbye" else line.drop())


async def _too_large(line: Connection, world: World) -> None:
    """A message over the server's size limit must end the connection with 1009 and a reason."""
    since_s = time.monotonic()
    code: int | None = None
    try:
        await line.send("x" * (33 << 20))
        async with line.inbox.expecting(lambda _: False) as never:
            async with asyncio.timeout(ERROR_WAIT_S):
                await never
    except ConnectionLost as closed:
        code = closed.code
    except TimeoutError:
        pass
    if code not in (1009, 1006):
        world.tally.complain(f"a huge message was closed with {code}", since_s)


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _of(kind: str) -> Callable[[Event], bool]:
    return lambda event: bool(event["type"] == kind)


def _begun(event: Event) -> bool:
    """Whether an answer has text or sound, or is over already."""
    return event["type"] in (
        "response.output_text.delta",
        "response.output_audio_transcript.delta",
        "response.done",
        "error",
    )


def _item_done(item: str) -> Callable[[Event], bool]:
    return lambda event: bool(
        event["type"] == "conversation.item.done" and event["item"]["id"] == item
    )


def _answer_or_error(event_id: str) -> Callable[[Event], bool]:
    refused = _error_for(event_id)
    return lambda event: event["type"] == "response.done" or refused(event)


def _error_for(event_id: str) -> Callable[[Event], bool]:
    return lambda event: bool(event["type"] == "error" and event["error"]["event_id"] == event_id)
