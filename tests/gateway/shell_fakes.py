"""Stand-ins for the parts around the gateway's shell: a tiny session core, a running server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.config import load
from headstart.gateway.connection.pending import PendingLimits
from headstart.gateway.engine_link import EngineLink, private_endpoint
from headstart.gateway.engines.engines import Engines
from headstart.gateway.protocol.session_config import SessionUpdate
from headstart.gateway.server.app import Gateway
from headstart.gateway.server.assemble import uvicorn_config
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.server.main import bind, url_of
from headstart.gateway.session.actions import Action, ContinueLater, Hangup, Send, SendToEngine
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.transport.webrtc.call_metrics import CallMetrics
from headstart.gateway.transport.webrtc.calls import Calls
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video.decode import DecodedImage, Outcome

WAIT_S = 60.0


class EchoSession:
    """Answers each text with an `echo` event; a few words do more (see `receive_text`)."""

    def __init__(self, session_id: str, engine_ready: bool, model_name: str) -> None:
        self.session_id = session_id
        self.hello: dict[str, Any] = {
            "type": "session.created",
            "ready": engine_ready,
            "model": model_name,
        }
        self.ticks = 0
        self.pieces = 0
        self.heard = bytearray()  # s16 mono at 24 kHz
        self.under_way_ns: list[int] = []
        self.seen: list[api.Image] = []
        self.closed = False
        self.token = ""
        self.resumable = False
        self.server_plays = False

    def set_server_plays(self, server_plays: bool) -> None:
        self.server_plays = server_plays

    def offer_resume(self, token: str, keep_ms: int) -> None:
        self.token = token

    def resumed(self, replayed: int | None, now_ns: int) -> list[Action]:
        return [Send({"type": "resumed", "replayed": replayed})]

    def preset(self, update: SessionUpdate, now_ns: int) -> None:
        self.hello["instructions"] = getattr(update, "instructions", None)
        self.hello["session_type"] = update.type

    def describe(self) -> dict[str, Any]:
        return self.hello | {"type": "realtime", "id": self.session_id}

    def state(self, now_ns: int) -> str:
        return "idle"

    def start(self, now_ns: int) -> list[Action]:
        return [Send(self.hello), SendToEngine(api.Open(self.session_id, "be brief"))]

    def prepare(self, text: str) -> Callable[[int], list[Action]]:
        return functools.partial(self.receive_text, text)

    def more(self, now_ns: int) -> list[Action]:
        self.pieces -= 1
        return [
            Send({"type": "piece", "left": self.pieces}),
            *([ContinueLater()] if self.pieces else []),
        ]

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        word, _, rest = text.partition(" ")
        if word == "flood":
            return [Send({"type": "flood", "data": "x" * 1000})] * int(rest)
        if word == "pieces":
            self.pieces = int(rest)
            return [ContinueLater()]
        if word == "work":  # so many ms of it
            end_s = time.perf_counter() + float(rest) / 1000
            while time.perf_counter() < end_s:
                pass
            return [Send({"type": "worked"})]
        if word == "keep":
            self.resumable = True
            return [Send({"type": "token", "token": self.token})]
        if word == "count":
            return [Send({"type": "n", "event_id": f"n{n}"}) for n in range(int(rest))]
        if word == "bug":
            raise ZeroDivisionError("a bug in the session core")
        if word == "bye":
            return [Send({"type": "echo", "text": "bye"}), Hangup(4000, "you said so")]
        if word == "stamp":
            return [Send({"type": "stamped"}, wants_sent_stamp=True)]
        if word == "ask":
            respond = api.Respond(self.session_id, 1, "item_1", api.Sampling())
            return [Send({"type": "response.created"}), SendToEngine(respond)]
        if word == "hear":
            ref = api.TurnRef(1)
            audio = api.Audio(self.session_id, ref, 0, b"\0" * (32 * int(rest)), now_ns)
            return [
                SendToEngine(api.BeginSpeech(self.session_id, ref, "item_0", 0)),
                SendToEngine(audio),
            ]
        return [Send({"type": "echo", "text": text})]

    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None:
        return None

    def receive_binary(self, size: int, now_ns: int) -> list[Action]:
        return [Send({"type": "binary", "size": size})]

    def receive_audio(self, pcm24k: bytes, arrival: Arrival | None, now_ns: int) -> list[Action]:
        self.heard += pcm24k
        if arrival is not None and arrival.captured_ns is not None:
            self.under_way_ns.append(arrival.received_ns - arrival.captured_ns)
        return []

    frame_size = api.PictureSize(pixels=5000)
    frame_before: bytes | None = None
    camera_rung: str | None = None

    def receive_image(self, decoded: DecodedImage, now_ns: int) -> list[Action]:
        self.seen.append(decoded.image)
        return []

    def decoded(self, request_id: int, outcome: Outcome, now_ns: int) -> list[Action]:
        return []

    def receive_engine(self, event: api.Event, now_ns: int) -> list[Action]:
        match event:
            case api.Delta():
                return [Send({"type": "delta", "text": event.text})]
            case api.Finished():
                return [Send({"type": "response.done", "reason": str(event.reason)})]
            case _:
                return [Send({"type": type(event).__name__})]

    def engine_lost(self, now_ns: int) -> list[Action]:
        return [Send({"type": "lost"})]

    def engine_ready(self, ready: api.Ready, now_ns: int) -> list[Action]:
        return [Send({"type": "ready"}), SendToEngine(api.Open(self.session_id, "be brief"))]

    def receive_voice(self, event: SynthesisedAudio | ClauseDone, now_ns: int) -> list[Action]:
        return [Send({"type": type(event).__name__})]

    def voice_changed(self, status: VoiceStatus, now_ns: int) -> list[Action]:
        return [Send({"type": "voice", "state": status.state})]

    def playing(self, what: str, position_sample: int, now_ns: int) -> list[Action]:
        return [Send({"type": what, "at": position_sample})]

    def cleared(self, dropped_samples: int, now_ns: int) -> list[Action]:
        return [Send({"type": "cleared", "dropped": dropped_samples})]

    def tick(self, now_ns: int) -> list[Action]:
        self.ticks += 1
        return []

    def sent(self, action: Send, now_ns: int) -> list[Action]:
        return [Send({"type": "was_sent", "what": action.event["type"]})]

    def close(self, now_ns: int) -> list[Action]:
        self.closed = True
        return [SendToEngine(api.Close(self.session_id))]


@dataclass
class RunningGateway:
    url: str
    gateway: Gateway
    link: EngineLink
    server: GatewayServer
    sessions: list[EchoSession]

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/realtime"


@contextlib.asynccontextmanager
async def running_gateway(
    limits: PendingLimits | None = None, **flags: Any
) -> AsyncIterator[RunningGateway]:
    """A real server on a free port over `EchoSession`s; no engine process."""
    settings: Settings = load(flags={"port": 0, "drain_s": 0.1} | flags)
    sessions: list[EchoSession] = []

    def make(session_id: str, engine_ready: bool, model_name: str) -> EchoSession:
        sessions.append(EchoSession(session_id, engine_ready, model_name))
        return sessions[-1]

    with private_endpoint() as endpoint, bind("127.0.0.1", 0) as sock:
        link = EngineLink(endpoint)
        gateway = Gateway(settings, Engines.single(link), make, Metrics().page)
        gateway.calls = Calls(gateway, CallMetrics(CollectorRegistry()))
        server = GatewayServer(uvicorn_config(settings, gateway), gateway, limits)
        link.start()
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            scheme = "http" if settings.tls_cert is None else "https"
            yield RunningGateway(url_of(sock, scheme), gateway, link, server, sessions)
        finally:
            server.leave()
            await asyncio.wait_for(serving, WAIT_S)
            link.close()


def fake_engine_argv(endpoint: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "headstart.gateway.fake_engine", "--endpoint", endpoint, *options]


@contextlib.asynccontextmanager
async def fake_engine(endpoint: str, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real fake-engine process, killed at the end."""
    process = await asyncio.create_subprocess_exec(*fake_engine_argv(endpoint, *options))
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that other tasks or processes bring about. Raises `TimeoutError`."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def receive(socket: Any, kind: str) -> dict[str, Any]:
    """The next event of a type; what comes before it is passed over."""
    async with asyncio.timeout(WAIT_S):
        while True:
            event: dict[str, Any] = json.loads(await socket.recv())
            if event["type"] == kind:
                return event
