"""A client of the Realtime API, for servers that speak it: ours and speech-to-speech.

It plays what it gets as it comes, stops at `speech_started`, and tells the server how much was
heard (`conversation.item.truncate`), as the API's documentation asks of clients that play
themselves.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headstart.benchmarks.peers.clips import Clip
from headstart.benchmarks.peers.feeding import (
    AT_LEAST_S,
    LONGEST_S,
    OPEN_WAIT_S,
    QUIET_S,
    ConversationFailed,
    feed,
    stream_of,
)
from headstart.benchmarks.peers.playback import Playback
from headstart.benchmarks.peers.score import USER, Answer, Conversation

RATE_HZ = 24_000
AGREE_WAIT_S = 60.0
"""For the session to be agreed on."""
SLOT_POLL_S = 0.2
SLOT_WAIT_S = 30.0
"""For the last conversation's slot, which a server may free a while after it has closed."""


@dataclass
class _Response:
    """A response in the making. `read`: ids of the items before it."""

    read: list[str]
    playback: Playback = field(default_factory=lambda: Playback(RATE_HZ))
    item_id: str = ""
    first_token_at_s: float | None = None
    text: str = ""
    done: bool = False
    failed: bool = False


@dataclass
class _Item:
    role: str
    text: str = ""
    heard_ms: int | None = None  # of an answer that was cut


@dataclass
class Log:
    """What has come from the server, and what it means. No I/O."""

    items: dict[str, _Item] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    responses: dict[str, _Response] = field(default_factory=dict)
    own_ms: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    timeline: list[tuple[float, str]] = field(default_factory=list)
    agreed: bool = False
    last_at_s: float = 0.0

    def take(self, event: dict[str, Any], now_s: float) -> list[dict[str, Any]]:
        """An event has come; returns the events that a client sends for it."""
        self.last_at_s = now_s
        kind, words = event["type"], event.get("transcript", "")
        if not kind.endswith(".delta"):
            self.timeline.append((now_s, f"{kind} {words}".strip()))
        match kind:
            case "session.updated":
                self.agreed = True
            case "conversation.item.added" | "conversation.item.created":
                self._add(event["item"], event.get("previous_item_id"))
            case "conversation.item.deleted":
                if event["item_id"] in self.order:
                    self.order.remove(event["item_id"])
            case "conversation.item.input_audio_transcription.completed":
                self._item(event["item_id"], USER).text = event["transcript"].strip()
            case "input_audio_buffer.speech_started":
                return self._silence(now_s)
            case "response.created":
                self.responses[event["response"]["id"]] = _Response(list(self.order))
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                self._word(event, now_s)
            case "response.output_audio.delta":
                self._sound(event, now_s)
            case "response.done":
                self._done(event["response"])
            case "gateway.latency.report":
                self._report(event)
            case "error":
                self.errors.append(json.dumps(event["error"])[:500])
            case _:
                pass
        return []

    def _add(self, item: dict[str, Any], previous: str | None) -> None:
        if item.get("type") != "message" or item["id"] in self.order:
            return
        at = self.order.index(previous) + 1 if previous in self.order else len(self.order)
        self.order.insert(at, item["id"])
        self.items.setdefault(item["id"], _Item(item["role"]))

    def _item(self, item_id: str, role: str) -> _Item:
        if item_id not in self.items:
            self.items[item_id] = _Item(role)
            self.order.append(item_id)
        return self.items[item_id]

    def _response(self, event: dict[str, Any]) -> _Response:
        return self.responses.setdefault(event["response_id"], _Response(list(self.order)))

    def _word(self, event: dict[str, Any], now_s: float) -> None:
        response = self._response(event)
        response.item_id = event["item_id"]
        response.text += event["delta"]
        if response.first_token_at_s is None and event["delta"].strip():
            response.first_token_at_s = now_s

    def _sound(self, event: dict[str, Any], now_s: float) -> None:
        response = self._response(event)
        response.item_id = event["item_id"]
        response.playback.add(now_s, np.frombuffer(base64.b64decode(event["delta"]), np.int16))

    def _done(self, response: dict[str, Any]) -> None:
        mine = self.responses.setdefault(response["id"], _Response(list(self.order)))
        mine.done = True
        mine.failed = response.get("status") == "failed"

    def _silence(self, now_s: float) -> list[dict[str, Any]]:
        """The person speaks: stop what is playing or would play, and say how much was heard."""
        sent = []
        for response in self.responses.values():
            playback = response.playback
            ends_s = playback.ends_at_s
            if playback.stopped or ends_s is None or (response.done and ends_s <= now_s):
                continue
            played_ms = playback.played_ms(now_s)
            playback.stop(now_s)
            if response.item_id in self.items:
                self.items[response.item_id].heard_ms = played_ms
            sent.append(
                {
                    "type": "conversation.item.truncate",
                    "item_id": response.item_id,
                    "content_index": 0,
                    "audio_end_ms": played_ms,
                }
            )
        return sent

    def _report(self, event: dict[str, Any]) -> None:
        total_ms = event["budget"]["total_ms"]
        if total_ms is not None:
            self.own_ms.setdefault("first_token", []).append(total_ms)
        voice = event.get("voice") or {}
        if voice.get("total_ms") is not None:
            self.own_ms.setdefault("first_sound", []).append(voice["total_ms"])

    def settled(self, now_s: float) -> bool:
        """An answer was heard to its end, and nothing is under way."""
        open_ = [r for r in self.responses.values() if not r.done]
        plays = any((r.playback.ends_at_s or 0.0) > now_s for r in self.responses.values())
        answered = any(r.playback.first_audible_at_s is not None for r in self.responses.values())
        return answered and not open_ and not plays and now_s - self.last_at_s > QUIET_S

    def conversation(self, clip: Clip, speech_end_at_s: float) -> Conversation:
        """What came of it."""
        for response in self.responses.values():
            item = self.items.get(response.item_id)
            if item is not None:
                item.text = response.text if item.heard_ms != 0 else ""
        return Conversation(
            clip.plan,
            speech_end_at_s,
            heard=[item.text for item in self._messages() if item.role == USER and item.text],
            answers=[self._answer(r, speech_end_at_s) for r in self.responses.values()],
            own_ms=self.own_ms,
            timeline=self.timeline,
        )

    def _messages(self) -> list[_Item]:
        return [self.items[each] for each in self.order]

    def _answer(self, response: _Response, speech_end_at_s: float) -> Answer:
        read = [self.items[each] for each in self.order if each in response.read]
        return Answer(
            read=[(item.role, item.text) for item in read],
            first_token_at_s=response.first_token_at_s,
            first_sound_at_s=response.playback.first_audible_at_s,
            heard_before_end_s=response.playback.heard_s(speech_end_at_s),
            text=response.text,
        )


async def converse(url: str, clip: Clip, session: dict[str, Any]) -> Conversation:
    """Speak a clip in a new session with these settings. Raises `ConversationFailed`."""
    log = Log(last_at_s=time.monotonic())
    async with _opened(url, log) as socket:
        listening = asyncio.create_task(_listen(socket, log))
        try:
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            await _agreed(log, listening)

            async def send(pcm: bytes) -> None:
                audio = base64.b64encode(pcm).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

            def enough(since_s: float) -> bool:
                over = since_s > AT_LEAST_S and log.settled(time.monotonic())
                return over or since_s > LONGEST_S - 1

            speech_end_at_s = await feed(stream_of(clip, RATE_HZ), send, enough)
        except ConnectionClosed as error:
            raise ConversationFailed(f"{clip.plan.name}: {error}; {log.errors}") from error
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    talk = log.conversation(clip, speech_end_at_s)
    talk.errors.extend(log.errors)
    return talk


@contextlib.asynccontextmanager
async def _opened(url: str, log: Log) -> AsyncIterator[ClientConnection]:
    """A connection whose first event has come, tried again while there is no slot."""
    headers = {"Authorization": "Bearer none-needed"}
    late_at_s = time.monotonic() + SLOT_WAIT_S
    while True:
        try:
            socket = await connect(
                url,
                additional_headers=headers,
                compression=None,
                max_size=None,
                open_timeout=OPEN_WAIT_S,
            )
        except OSError as error:  # TimeoutError is one
            raise ConversationFailed(f"expected a connection, got {error}") from error
        async with socket:
            try:
                first = json.loads(await socket.recv())
            except ConnectionClosed as error:
                first = {"type": "error", "error": str(error)}
            if first["type"] != "error":
                log.take(first, time.monotonic())
                yield socket
                return
        if time.monotonic() > late_at_s:
            raise ConversationFailed(f"expected a session, got {first['error']}")
        await asyncio.sleep(SLOT_POLL_S)


async def _agreed(log: Log, listening: asyncio.Task[None]) -> None:
    late_at_s = time.monotonic() + AGREE_WAIT_S
    while not log.agreed:
        if log.errors or listening.done() or time.monotonic() > late_at_s:
            raise ConversationFailed(f"expected session.updated, got {log.errors or 'nothing'}")
        await asyncio.sleep(0.01)


async def _listen(socket: ClientConnection, log: Log) -> None:
    try:
        async for message in socket:
            for reply in log.take(json.loads(message), time.monotonic()):
                await socket.send(json.dumps(reply))
    except ConnectionClosed:
        return
