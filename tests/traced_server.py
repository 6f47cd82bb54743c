"""A server and its engine in this process, and the order in which their functions are called.

    client ─▶ socket or call ─▶ gateway, on the event loop of the test
                                   ║ ZeroMQ
    Trace  ◀─ profile hook ─────  engine, `GatewayLink.serve` in a thread

Everything is real but for two things: gateway and engine are one process, and the voice makes
silence. Picture decoders stay processes of their own; what runs in them is not traced.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from headstart.engine.config import EngineConfig
from headstart.engine.process.assemble import ModelPaths, assemble
from headstart.engine.process.ipc import GatewayLink
from headstart.engine.weights import resolve_model
from headstart.gateway.config import load
from headstart.gateway.engine_link import EngineLink, private_endpoint
from headstart.gateway.engines.engines import Engines
from headstart.gateway.server.assemble import make_gateway, uvicorn_config
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.server.main import bind, url_of
from headstart.gateway.settings import Settings
from headstart.gateway.tts.link import VoiceLink, VoiceListener
from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio, VoiceCommand
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video.decode_pool import DECODERS

ROOT = Path(__file__).resolve().parents[1]
WAIT_S = 120.0


class Trace:
    """Calls of our functions between `begin` and `end`, in order, by file and qualified name:
    `gateway/session/session.py`, `Session.receive_text`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._is_recording = False
        self._names: dict[CodeType, tuple[str, str] | None] = {}

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`."""
        if event != "call" or not self._is_recording:
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _name_of(code)
        name = self._names[code]
        if name is not None:
            self.calls.append(name)

    @contextlib.contextmanager
    def everywhere(self) -> Iterator[None]:
        """In this thread, and in those that are started meanwhile."""
        before = sys.getprofile()
        threading.setprofile(self.hook)
        sys.setprofile(self.hook)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def begin(self) -> None:
        """Forget what was called so far."""
        self.calls = []
        self._is_recording = True

    def end(self) -> None:
        self._is_recording = False


def _name_of(code: CodeType) -> tuple[str, str] | None:
    path = Path(code.co_filename).resolve()
    if not path.is_relative_to(ROOT) or "<" in code.co_qualname:
        return None
    relative = path.relative_to(ROOT)
    return (str(relative), code.co_qualname) if relative.parts[0] != "tests" else None


class SilentVoice:
    """A voice in place of `VoiceLink`: two seconds of silence for each word, at once, so that what
    was heard does not depend on how the text is cut."""

    status = VoiceStatus("ready", "silence")

    def __init__(self) -> None:
        self._listeners: dict[str, VoiceListener] = {}

    def attach(self, session: str, listener: VoiceListener) -> None:
        self._listeners[session] = listener

    def detach(self, session: str) -> None:
        del self._listeners[session]

    def send(self, command: VoiceCommand) -> bool:
        if isinstance(command, Speak):
            asyncio.get_running_loop().call_soon(self._speak, command)
        return True

    def _speak(self, command: Speak) -> None:
        listener = self._listeners.get(command.session)
        if listener is not None:
            clause = command.session, command.generation, command.clause
            words = len(command.text.split())
            listener.voice_event(SynthesisedAudio(*clause, bytes(2 * 48_000 * words)))
            listener.voice_event(ClauseDone(*clause))


@contextlib.asynccontextmanager
async def serving(trace: Trace, voice: SilentVoice) -> AsyncIterator[str]:
    """The URL of a server with the real `tiny`, ready."""
    settings: Settings = load(flags={"port": 0, "drain_s": 0.1, "model": "tiny"})
    with trace.everywhere(), contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(private_endpoint())
        sock = stack.enter_context(bind("127.0.0.1", 0))
        link = EngineLink(endpoint, lost_after_s=WAIT_S)
        gateway = make_gateway(settings, Engines.single(link), cast(VoiceLink, voice))
        server = GatewayServer(uvicorn_config(settings, gateway), gateway)
        link.start()
        engine_link = GatewayLink(link.endpoint)
        engine = threading.Thread(target=_run_engine, args=(engine_link,), daemon=True)
        engine.start()
        DECODERS.start()
        served = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            async with asyncio.timeout(WAIT_S):
                while not link.is_ready:
                    await asyncio.sleep(0.05)
            yield url_of(sock)
        finally:
            server.leave()
            await asyncio.wait_for(served, WAIT_S)
            engine_link.stopping = True
            await asyncio.to_thread(engine.join, WAIT_S)
            link.close()
            await DECODERS.stop()


def _run_engine(link: GatewayLink) -> None:
    paths = ModelPaths.of(resolve_model("tiny"))
    engine, model = assemble(paths, EngineConfig(model="tiny"), link.send, link.loading)
    link.serve(engine, model)
    link.close()
