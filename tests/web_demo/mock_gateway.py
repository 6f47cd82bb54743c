"""A gateway that plays a script: the page's other half for tests, with no engine behind it.

It serves the page, `/status` and the Realtime endpoint. What it does is driven by what the page
sends: the turn advances with the samples that arrive, so no test depends on how fast the machine
is. Events are built by the gateway's own `Events`, so that their shape cannot drift apart.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.protocol.events import Events, PartRef
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.server.app import PROJECT_WEB_DIR
from headstart.gateway.telemetry.latency import Anchor, TurnBudget
from tests.web_demo.threaded_server import START_WITHIN_S, ThreadedServer

RATE_HZ = 24_000

Json = dict[str, Any]

STAGES_MS: dict[str, float | None] = {
    "network": None,
    "buffer": 0.0,
    "resample": 0.4,
    "vad_hangover": 500.0,
    "mel": 0.0,
    "encode": 0.0,
    "project": 0.0,
    "queue": 3.1,
    "prefill": 21.5,
    "decode_first": 38.0,
    "detokenize": 0.2,
    "send": 0.3,
}
VOICE_MS = 60.0
WORK_MS: dict[str, float | None] = {
    "mel": 14.0,
    "encode": 210.0,
    "project": 1.5,
    "queue": None,
    "prefill": 96.0,
    "decode_first": 38.0,
    "detokenize": 0.2,
}
HIDDEN_MS = 300.0
BUDGET_MS = 800


TENTH_OF_A_TONE = (
    (8_000 * np.sin(2 * np.pi * 440 * np.arange(RATE_HZ // 10) / RATE_HZ)).astype("<i2").tobytes()
)


@dataclass(frozen=True)
class Script:
    """What the person is taken to say, and what is answered. Points in time are in seconds of
    sound received since the connection opened."""

    hearings: tuple[tuple[float, str, str], ...] = (
        (0.6, "", "What is"),
        (0.8, "What is", " the cap"),
        (1.0, "What is the capital", " of"),
        (1.2, "What is the capital of", " friends"),
        (1.4, "What is the capital of France?", ""),
    )
    start_s: float = 0.4
    stop_s: float = 1.6
    chunk_s: float = 0.5
    answer: tuple[str, ...] = ("The capital", " of France", " is Paris.")
    holds_answer: bool = False  # after the first piece, until it is cancelled
    error: str | None = None  # sent as an `error` event in place of every answer
    sound_s: float = 0.0  # of a tone, sent at once with every answer
    interrupts_after_s: float | None = None  # then somebody speaks, while that is being played
    knows_playout: bool = True  # else it is a server from before `gateway.playout.started`
    hangs_up: bool = False  # closes the connection in place of an answer


@dataclass
class Received:
    """What the page has sent, over all connections."""

    messages: list[Json] = field(default_factory=list)
    audio: bytearray = field(default_factory=bytearray)
    packets: list[int] = field(default_factory=list)  # samples of each
    arrived_s: list[float] = field(default_factory=list)  # monotonic, of each packet
    images: list[bytes] = field(default_factory=list)
    models: list[str] = field(default_factory=list)  # ?model= of each connection

    def of_type(self, type_: str) -> list[Json]:
        return [message for message in self.messages if message["type"] == type_]


class MockGateway(ThreadedServer):
    """One server on a free port. What it does may be changed at any time between events."""

    script: Script
    engine: Json  # as in `/status`
    model: Json  # the same
    webrtc: bool  # the same; it takes no calls whatever it says
    stages_ms: dict[str, float | None]
    received: Received

    def __init__(self) -> None:
        self.reset()
        app = Starlette(
            routes=[
                Route("/status", self._status),
                WebSocketRoute("/v1/realtime", self._converse),
                Mount("/", StaticFiles(directory=PROJECT_WEB_DIR, html=True)),
            ]
        )
        self._newest: tuple[asyncio.AbstractEventLoop, WebSocket] | None = None
        super().__init__(app)

    def reset(self) -> None:
        """As new; connections that are open stay so."""
        self.script = Script()
        self.engine = {"state": "ready", "reason": "", "loading": None}
        self.model = {"name": "mock", "llm_server": None}
        self.webrtc = False
        self.stages_ms = STAGES_MS
        self.received = Received()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def tell(self, *events: Json) -> None:
        """Sends events to the newest connection, from any thread."""
        assert self._newest is not None, "no page has connected"
        loop, ws = self._newest
        for event in events:
            sent = asyncio.run_coroutine_threadsafe(ws.send_text(json.dumps(event)), loop)
            sent.result(START_WITHIN_S)

    async def _status(self, _: Request) -> Response:
        return JSONResponse({"engine": self.engine, "model": self.model, "webrtc": self.webrtc})

    async def _converse(self, ws: WebSocket) -> None:
        self.received.models.append(ws.query_params["model"])
        await ws.accept()
        self._newest = asyncio.get_running_loop(), ws
        with contextlib.suppress(WebSocketDisconnect):
            await _Conversation(self, ws).run()


class _Conversation:
    """One connection: plays the script once for sound, and answers everything typed."""

    def __init__(self, mock: MockGateway, ws: WebSocket) -> None:
        self.mock = mock
        self.ws = ws
        self.ids = IdMaker()
        self.events = Events(self.ids)
        self.samples = 0
        self.turns = 0
        self.by_hand = False  # the page ends the turns
        self.frames = 0
        self.steps = self._spoken_turn()
        self.next_step: tuple[float, list[Json]] | None = next(self.steps)

    async def send(self, *events: Json) -> None:
        for event in events:
            await self.ws.send_text(json.dumps(event))

    async def run(self) -> None:
        await self.send(self.events.session_created({"type": "realtime"}))
        while True:
            message = json.loads(await self.ws.receive_text())
            self.mock.received.messages.append(message)
            await self._on_message(message)

    async def _on_message(self, message: Json) -> None:
        match message["type"]:
            case "session.update":
                heard = message["session"].get("audio", {}).get("input", {})
                if "turn_detection" in heard:
                    self.by_hand = heard["turn_detection"] is None
                await self.send(self.events.session_updated(message["session"]))
            case "input_audio_buffer.clear":
                await self.send(self.events.cleared())
            case "input_audio_buffer.commit":
                await self._on_commit()
            case "gateway.playout.started" if not self.mock.script.knows_playout:
                refusal = {"code": "unknown", "param": "type", "message": "No such event."}
                error = {"type": "invalid_request_error", "event_id": message["event_id"]}
                await self.send({"type": "error", "event_id": "e", "error": error | refusal})
            case "input_audio_buffer.append":
                await self._on_audio(base64.b64decode(message["audio"], validate=True))
            case "input_image_buffer.append":
                self.mock.received.images.append(base64.b64decode(message["image"], validate=True))
                await self.send(self._judged(message.get("event_id")))
            case "conversation.item.create":
                item = {"id": self.ids.item(), "status": "completed", **message["item"]}
                await self.send(self.events.item_added(item, None))
            case "response.create":
                await self._answer(self.mock.script.answer, Anchor.REQUESTED)

    async def _on_audio(self, pcm: bytes) -> None:
        received = self.mock.received
        received.audio += pcm
        received.packets.append(len(pcm) // 2)
        received.arrived_s.append(time.monotonic())
        if self.by_hand:
            return
        self.samples += len(pcm) // 2
        while self.next_step is not None and self.samples >= self.next_step[0] * RATE_HZ:
            await self.send(*self.next_step[1])
            self.next_step = next(self.steps, None)
            if self.next_step is None:
                await self._answer(self.mock.script.answer, Anchor.RECEIVED)

    async def _on_commit(self) -> None:
        """What was held to talk: understood as the script's last words."""
        item_id, said = self.ids.item(), self.mock.script.hearings[-1][1]
        content = [{"type": "input_audio", "transcript": None}]
        item = {"id": item_id, "type": "message", "role": "user", "content": content}
        await self.send(
            self.events.committed(item_id, None),
            self.events.item_added({**item, "status": "completed"}, None),
            self.events.transcription_completed(item_id, said, audio_s=1.2),
        )

    def _judged(self, event_id: str | None) -> Json:
        """Every other picture is kept."""
        self.frames += 1
        first = self.frames == 1
        return self.events.frame_judged(
            "kept" if self.frames % 2 else "unchanged",
            frame_event_id=event_id,
            at_ms=1000.0 * self.frames,
            changed=None if first else 0.17 if self.frames % 2 else 0.004,
            since_kept_ms=None if first else 1000.0 * (2 - self.frames % 2),
            rung="full",
        )

    def _spoken_turn(self) -> Iterator[tuple[float, list[Json]]]:
        """(seconds of sound, events to send then) up to the moment before the answer."""
        item_id = self.ids.item()
        start_s, events = self.mock.script.start_s, self.events
        yield start_s, [events.speech_started(item_id, round(1000 * start_s))]
        script = self.mock.script  # as it is by now
        for i, (at_s, committed, tentative) in enumerate(script.hearings):
            hearing = events.hearing(
                turn=0,
                item_id=item_id,
                committed=committed,
                tentative=tentative,
                audio_ms=1000 * at_s,
            )
            yield at_s, [hearing, self._chunk(i, item_id)]
        item = {
            "id": item_id,
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        said = script.hearings[-1][1]
        yield (
            script.stop_s,
            [
                events.speech_stopped(item_id, round(1000 * script.stop_s)),
                events.item_added(item, None),
                events.transcription_completed(item_id, said, audio_s=1.2),
            ],
        )

    def _chunk(self, number: int, item_id: str) -> Json:
        busy_ms = 60.0 + 18.0 * (number % 4)
        return self.events.chunk_report(
            turn=0,
            item_id=item_id,
            start_sample=8_000 * number,
            duration_ms=1000 * self.mock.script.chunk_s,
            due_ms=1000 * self.mock.script.chunk_s,
            stages_ms={"mel": 2.0, "encode": busy_ms, "prefill": 24.0},
            latency_ms=busy_ms + 30.0,
            prefilled_tokens=3,
            rolled_back_tokens=1,
        )

    async def _answer(self, pieces: tuple[str, ...], anchor: Anchor) -> None:
        if self.mock.script.hangs_up:
            await self.ws.close(1011, "")
            raise WebSocketDisconnect
        if self.mock.script.error is not None:
            error = {"type": "server_error", "code": "x", "message": self.mock.script.error}
            await self.send({"type": "error", "event_id": "event_1", "error": error})
            return
        ref = PartRef(self.ids.response(), self.ids.item())
        item = {"id": ref.item_id, "type": "message", "role": "assistant", "content": []}
        await self.send(
            self.events.response_created({"id": ref.response_id, "status": "in_progress"}),
            self.events.output_item_added(ref.response_id, 0, item),
            self.events.item_added(item, None),
            self.events.text_delta(ref, pieces[0]),
            self._report(ref, anchor),
        )
        if self.mock.script.holds_answer:
            await self._cancelled()
            done = {"id": ref.response_id, "status": "cancelled", "status_details": None}
            await self.send(self.events.response_done(done))
            return
        await self.send(*(self.events.text_delta(ref, piece) for piece in pieces[1:]))
        for _ in range(round(10 * self.mock.script.sound_s)):
            sound = {"delta": base64.b64encode(TENTH_OF_A_TONE).decode()}
            await self.send(self.events.audio_delta(ref) | sound)
        done = {"id": ref.response_id, "status": "completed", "status_details": None}
        await self.send(
            self.events.text_done(ref, "".join(pieces)), self.events.response_done(done)
        )

        if self.mock.script.interrupts_after_s is not None:
            await asyncio.sleep(self.mock.script.interrupts_after_s)
            await self.send(self.events.speech_started(self.ids.item(), 0))

    async def _cancelled(self) -> None:
        """Waits until the page cancels the answer."""
        while True:
            message = json.loads(await self.ws.receive_text())
            self.mock.received.messages.append(message)
            if message["type"] == "response.cancel":
                return

    def _report(self, ref: PartRef, anchor: Anchor) -> Json:
        spoken = anchor is Anchor.RECEIVED
        stages_ms = {
            stage: ms if spoken or stage in WORK_MS or stage == "send" else None
            for stage, ms in self.mock.stages_ms.items()
        }
        self.turns += 1
        budget = TurnBudget(
            anchor=anchor,
            total_ns=sum(ns for ns in in_ns(stages_ms).values() if ns is not None),
            stages_ns=in_ns(stages_ms),
            work_ns=in_ns(WORK_MS),
            hidden_ns=round(HIDDEN_MS * NS_PER_MS) if spoken else 0,
            realtime=True,
            latency_budget_ms=BUDGET_MS,
        )
        voice = self._voice(budget)
        told = budget.to_wire()
        told["stages_ms"] |= {"voice": None if voice is None else VOICE_MS, "playout": None}
        told |= {"first_sound_ms": None if voice is None else voice["total_ms"], "heard_ms": None}
        return self.events.latency_report(
            turn=self.turns,
            item_id=ref.item_id,
            response_id=ref.response_id,
            budget=told,
            voice=voice,
        )

    def _voice(self, budget: TurnBudget) -> Json | None:
        """When its first sound was sent."""
        if self.mock.script.sound_s == 0:
            return None
        total_ms = (budget.total_ns or 0) / NS_PER_MS + VOICE_MS
        return {"first_clause_ms": 20.0, "first_sound_ms": 40.0, "total_ms": total_ms}


def in_ns(stages_ms: Mapping[str, float | None]) -> dict[str, int | None]:
    return {stage: None if ms is None else round(ms * NS_PER_MS) for stage, ms in stages_ms.items()}
