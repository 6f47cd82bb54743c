"""A client that sends valid and nearly valid events in an order drawn from a seed.

It checks what it is told as `tests.gateway.whole_bench.Mirror` does (nothing names a deleted item,
items are told of in their places, all that began ends), and that each event has its documented
answer or a named error.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.gateway.whole_bench import Mirror

Json = dict[str, Any]
WAIT_S = 90.0
ANSWERED_BY = {
    "session.update": "session.updated",
    "input_audio_buffer.clear": "input_audio_buffer.cleared",
    "input_audio_buffer.commit": "input_audio_buffer.committed",
    "conversation.item.create": "conversation.item.added",
    "conversation.item.delete": "conversation.item.deleted",
    "conversation.item.retrieve": "conversation.item.retrieved",
    "conversation.item.truncate": "conversation.item.truncated",
    "response.create": "response.created",
}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
DETECTION: list[Json | None] = [
    None,
    {"type": "server_vad"},
    {"type": "server_vad", "silence_duration_ms": 200, "create_response": False},
    {"type": "server_vad", "idle_timeout_ms": 1000},
    {"type": "server_vad", "threshold": 2},
    {"type": "semantic_vad", "eagerness": "high"},
]
FORMATS = [{"type": "audio/pcm", "rate": 24000}, {"type": "audio/pcmu"}, {"type": "audio/pcma"}]
EVENTS = ["latency", "chunks", "hearing", "endpoint", "engine", "interruption", "turn"]
SETTINGS: dict[str, list[Any]] = {
    "instructions": ["", "Be brief.", "Be very brief. " * 13_000, "\x1b[31m\u202e"],
    "output_modalities": [["text"], ["audio"], ["text", "audio"], []],
    "max_output_tokens": [1, 20, "inf", 0],
    "tools": [[], [TOOL], [TOOL, TOOL]],
    "tool_choice": ["auto", "none", "required", {"type": "function", "name": "none"}],
    "truncation": ["auto", {"type": "retention_ratio", "retention_ratio": 0.1}],
    "gateway": [None, {"events": EVENTS}, {"chunk_ms": 200}, {"chunk_ms": 7}, {"resume": True}],
}
SOUNDS = ["", "!!", "AA=A", *(base64.b64encode(bytes(n)).decode() for n in (1, 2, 3, 48_000))]
TEXTS = ["Hi", "", "Tell me a long story.", "x " * 3000]


class RandomClient:
    """`speech`: s16 mono at 24 kHz, of which pieces are sent."""

    def __init__(self, socket: ClientConnection, seed: int, speech: bytes) -> None:
        self.mirror = Mirror()
        self.told: Counter[str] = Counter()
        self.answers: list[Json] = []
        self._socket, self._chance, self._speech = socket, random.Random(seed), speech
        self._errors: dict[str | None, Json] = {}
        self._responses = ["none"]
        self._sent = 0
        self._reader = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()

    async def walk(self, steps: int) -> None:
        """Send so many random events or series of them; raises if one is not answered."""
        acts: list[tuple[int, Callable[[], Any]]] = [
            (6, self._update), (8, self._create), (5, self._delete), (2, self._retrieve),
            (4, self._truncate), (8, self._respond), (4, self._cancel), (4, self._append),
            (5, self._speak), (4, self._commit), (2, self._clear), (3, self.fence), (4, self._rest),
            (2, self._odd),
        ]  # fmt: skip
        weights = [weight for weight, _ in acts]
        for _ in range(steps):
            ((_, act),) = self._chance.choices(acts, weights)
            await act()

    async def settle(self) -> None:
        """Stop, wait until all that began has ended, and ask for one more answer."""
        silent = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        await self.fence()  # so that no answer below is one to an earlier event
        await self._answered("session.update", session=silent)
        await self._answered("input_audio_buffer.clear")
        async with asyncio.timeout(WAIT_S):
            while self.mirror.responses or self.mirror.hearing or self.mirror.open_items:
                self._check_reader("the end of all that began")
                for response in sorted(self.mirror.responses):
                    await self._send("response.cancel", response_id=response)
                await asyncio.sleep(0.2)
        self.mirror.settled()
        for item_id in list(self.mirror.order):
            assert await self._answered("conversation.item.retrieve", item_id=item_id) is None
        plain = {"type": "realtime", "output_modalities": ["text"], "tools": []}
        assert await self._answered("session.update", session=plain) is None
        await self._ask_at_last()
        await self._until(lambda: not self.mirror.responses, "the last answer")
        assert self.answers[-1]["status"] in ("completed", "incomplete"), self.answers[-1]
        await self.fence()  # what came behind it is in order, too
        self._check_reader("an open connection")

    async def _ask_at_last(self) -> None:
        """Ask for an answer. One to speech may run that the client is not told of before there are
        words: then the error tells of it, and the client asks again when that answer is over."""
        for _ in range(1 + self.told["input_audio_buffer.committed"]):
            told = len(self._responses)
            error = await self._answered("response.create", response={"max_output_tokens": 8})
            if error is None:
                return
            assert error["code"] == "conversation_already_has_active_response", error
            (named,) = self._responses[told:]
            assert named in error["message"], error
            await self._until(lambda: not self.mirror.responses, "the end of an answer to speech")
        raise AssertionError("more answers than utterances")

    async def fence(self) -> None:
        """Wait until the server has read all that was sent."""
        event_id = await self._send("conversation.item.delete", item_id="fence")
        await self._until(lambda: event_id in self._errors, "an error for a fence")

    # --- what is sent ----------------------------------------------------------------------------

    async def _update(self) -> None:
        chance = self._chance
        names = chance.sample(list(SETTINGS), chance.randint(0, 3))
        session = {"type": "realtime", **{name: chance.choice(SETTINGS[name]) for name in names}}
        heard = {"turn_detection": chance.choice(DETECTION), "format": chance.choice(FORMATS)}
        heard["transcription"] = chance.choice([None, {"model": "whisper-1"}])
        audio: Json = {"input": {k: v for k, v in heard.items() if chance.random() < 0.4}}
        if chance.random() < 0.3:
            audio["output"] = {
                "format": chance.choice(FORMATS),
                "speed": chance.choice([1, 1.5, 9]),
            }
        await self._either("session.update", session=session | {"audio": audio})

    async def _create(self) -> None:
        more = {"previous_item_id": self._any_id()} if self._chance.random() < 0.4 else {}
        await self._either("conversation.item.create", item=self._item(), **more)

    async def _delete(self) -> None:
        await self._either("conversation.item.delete", item_id=self._any_id())

    async def _retrieve(self) -> None:
        await self._send("conversation.item.retrieve", item_id=self._any_id())

    async def _truncate(self) -> None:
        end_ms, index = self._chance.choice([0, 100, 10**6, 2**53 - 1]), self._chance.choice([0, 1])
        where = {"content_index": index, "audio_end_ms": end_ms}
        await self._send("conversation.item.truncate", item_id=self._any_id(), **where)

    async def _respond(self) -> None:
        chance, response = self._chance, Json()
        if chance.random() < 0.3:
            response["conversation"] = chance.choice(["none", "auto"])
        if chance.random() < 0.2:
            response["tools"] = [TOOL]
        if chance.random() < 0.3:
            reference = {"type": "item_reference", "id": self._any_id()}
            response["input"] = [chance.choice([self._item(), reference])]
        await self._either("response.create", response=response)

    async def _cancel(self) -> None:
        named = {"response_id": self._chance.choice(self._responses)}
        await self._send("response.cancel", **(named if self._chance.random() < 0.4 else {}))

    async def _append(self) -> None:
        await self._send("input_audio_buffer.append", audio=self._chance.choice(SOUNDS))

    async def _speak(self) -> None:
        begin = self._chance.randrange(0, len(self._speech) // 2, 2)
        silence = bytes(self._chance.choice([0, 9_600, 36_000]))
        sound = self._speech[begin : begin + self._chance.randrange(9_600, 96_000, 2)] + silence
        for start in range(0, len(sound), 4_800):
            audio = base64.b64encode(sound[start : start + 4_800]).decode()
            await self._send("input_audio_buffer.append", audio=audio)

    async def _commit(self) -> None:
        await self._either("input_audio_buffer.commit")

    async def _clear(self) -> None:
        await self._either("input_audio_buffer.clear")

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.choice([0, 0.01, 0.1, 0.5]))

    async def _odd(self) -> None:
        odd = ["{}", "[]", "null", "{", '{"type": 7}', '{"type": "response.cancel", "event_id": 7}']
        await self._socket.send(self._chance.choice(odd))

    def _item(self) -> Json:
        chance = self._chance
        item: Json
        match chance.randrange(6):
            case 0:
                arguments = chance.choice(["{}", "[]", "no"])
                item = {"type": "function_call", "name": "f", "arguments": arguments}
                item["call_id"] = chance.choice(["c1", "c2"])
            case 1:
                item = {
                    "type": "function_call_output",
                    "call_id": chance.choice(["c1", "c2", "c3"]),
                }
                item["output"] = "42"
            case _:
                role = chance.choice(["user", "user", "system", "assistant"])
                kind = "output_text" if role == "assistant" else "input_text"
                content: list[Json] = [{"type": kind, "text": chance.choice(TEXTS)}]
                if role == "user" and chance.random() < 0.3:
                    sound = base64.b64encode(self._speech[:48_000]).decode()
                    content.append({"type": "input_audio", "audio": sound})
                item = {"type": "message", "role": role, "content": content}
        return item | ({"id": self._any_id()} if chance.random() < 0.4 else {})

    def _any_id(self) -> str:
        """An item's that is there, that was there, or that was named; or none's."""
        named = sorted(self.mirror.named)
        pools = [list(self.mirror.order), sorted(self.mirror.deleted), named]
        pools += [[f"{name}_0" for name in named], ["none", "root", "", "x" * 33, "\u202e"]]
        pool = self._chance.choices(pools, [6, 2, 3, 1, 2])[0]
        return self._chance.choice(pool) if pool else "none"

    # --- what is told ----------------------------------------------------------------------------

    async def _read(self) -> None:
        async for text in self._socket:
            event = json.loads(text)
            self.mirror.take(event)
            self.told[event["type"]] += 1
            if event["type"] == "error":
                self._errors[event["error"]["event_id"]] = event["error"]
            elif event["type"] == "response.created":
                self._responses.append(event["response"]["id"])
            elif event["type"] == "response.done":
                self.answers.append(event["response"])

    async def _send(self, type_: str, **fields: Any) -> str:
        self._sent += 1
        event_id = f"sent_{self._sent}"
        await self._socket.send(json.dumps({"type": type_, "event_id": event_id, **fields}))
        return event_id

    async def _either(self, type_: str, **fields: Any) -> None:
        """Send an event, and wait for its answer or not."""
        await (self._answered if self._chance.random() < 0.4 else self._send)(type_, **fields)

    async def _answered(self, type_: str, **fields: Any) -> Json | None:
        """Send an event and wait for its answer. Returns the error if it is one."""
        answer = ANSWERED_BY[type_]
        before = self.told[answer]
        event_id = await self._send(type_, **fields)
        came = lambda: event_id in self._errors or self.told[answer] > before  # noqa: E731
        await self._until(came, f"an answer to {type_} {str(fields)[:200]}")
        return self._errors.get(event_id)

    async def _until(self, came: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not came():
                    self._check_reader(what)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{what} never came") from None

    def _check_reader(self, what: str) -> None:
        """Raises what was wrong with an event, or that the server has closed, while we wait."""
        if self._reader.done():
            self._reader.result()
            why = f"{self._socket.close_code} {self._socket.close_reason}"
            raise AssertionError(f"closed with {why} instead of {what}")
