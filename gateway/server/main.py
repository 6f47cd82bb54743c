"""Starts the processes: gateway and supervised engine, or either of them alone.

All handling of signals, listening sockets and the terminal is here.

"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import importlib
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from headstart.engine import api
from headstart.engine.api.keys import BadKeys, check_address
from headstart.gateway.auth.access import is_open_to_others, read_keys
from headstart.gateway.config import near_misses
from headstart.gateway.engine_link import (
    EngineLink,
    LinkObserver,
    private_endpoint,
    shared_endpoint,
)
from headstart.gateway.engines import local
from headstart.gateway.engines.engines import Engines, Member
from headstart.gateway.engines.port import EnginePort
from headstart.gateway.errors import ConfigError, PortInUse
from headstart.gateway.runtime import log_lines, tasks, threads
from headstart.gateway.runtime.child_process import ChildProcess
from headstart.gateway.runtime.later_import import import_alone
from headstart.gateway.server import descriptors
from headstart.gateway.server.supervision import supervise, supervise_alone
from headstart.gateway.settings import Settings
from headstart.gateway.tracing.traces import from_environment
from headstart.gateway.tts.choose import choose
from headstart.gateway.tts.link import VoiceLink

if TYPE_CHECKING:
    from headstart.gateway.dashboard.dashboard import Dashboard
    from headstart.gateway.dashboard.recorder import Recorder, RecordingFile
    from headstart.gateway.server.app import Gateway
    from headstart.gateway.server.http_server import GatewayServer
    from headstart.gateway.tracing.traces import Traces
    from headstart.gateway.video.decode_pool import Decoders

log = logging.getLogger("headstart.serve")

BACKLOG = 2048
NOT_OURS = ("openai", "openai.types", "openai.types.responses")
"""Packages around the protocol's types that nobody here asks for: clients, other interfaces."""
VOICE_WAIT_S = 2.0
"""The picture decoders start this long behind the gateway, or earlier."""
SETTINGS_WAIT_S = 10.0
"""At most, for an engine to take its settings or refuse them, before the rest is started."""
PROGRESS_STEP = 0.1
"""Share of a loading step after which the next log line is due."""


def serve(settings: Settings, announce: bool = False) -> None:
    """`headstart serve`: until SIGTERM or SIGINT. Raises `GatewayError`s that end it."""
    _set_up_logging(settings)
    if settings.engines == 0 and settings.engine_endpoint is None:
        raise ConfigError(["engines 0: then engines must connect: give an engine_endpoint"])
    sock = bind(settings.host, settings.port)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        private = [stack.enter_context(private_endpoint()) for _ in range(settings.engines)]
        encoder = stack.enter_context(_encoder_endpoint(settings))
        port = settings.engine_endpoint
        _run(_serve(settings, sock, private, port, announce=announce, encoder=encoder))


def web(settings: Settings, announce: bool = False) -> None:
    """`headstart web`: the gateway alone; engines connect from other processes."""
    _set_up_logging(settings)
    with bind(settings.host, settings.port) as sock:
        endpoint = settings.engine_endpoint or shared_endpoint()
        _run(_serve(settings, sock, [], endpoint, announce=announce))


def engine(settings: Settings) -> None:
    """`headstart engine`: supervised engines alone, for a gateway in another process."""
    _set_up_logging(settings)
    endpoint = settings.engine_endpoint or shared_endpoint()
    try:
        check_address(endpoint, settings.engine_keys)
    except BadKeys as error:
        raise ConfigError([f"engine_endpoint {error}"]) from error
    base = local.name_elsewhere(settings)
    count = settings.engines
    named = [base] if count == 1 else [f"{base or 'engine'}-{n}" for n in range(1, count + 1)]
    with _encoder_endpoint(settings) as encoder:
        processes = [
            local.engine_process(settings, endpoint, name=name, share=share, encoder=encoder)
            for name, share in zip(named, local.shares_here(settings), strict=True)
        ]
        beside = None if encoder is None else local.encoder_process(settings, encoder)
        _run(supervise_alone(processes, beside))


def encoder(settings: Settings) -> None:
    """`headstart encoder`: a supervised encoder process alone, for engines elsewhere."""
    _set_up_logging(settings)
    if settings.encoder_url is None:
        raise ConfigError(["encoder_url: give the address at which engines connect"])
    try:
        check_address(settings.encoder_url, settings.engine_keys)
    except BadKeys as error:
        raise ConfigError([f"encoder_url {error}"]) from error
    keys = settings.engine_keys
    _run(supervise_alone([local.encoder_process(settings, settings.encoder_url, keys)]))


@contextlib.contextmanager
def _encoder_endpoint(settings: Settings) -> Iterator[str | None]:
    """An address for an encoder process beside the engines; None: there is to be none."""
    if not local.wants_encoder(settings):
        yield None
        return
    with private_endpoint() as endpoint:
        yield endpoint


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet. Raises `PortInUse` or `ConfigError`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError([f"host: {host!r} is no address of any machine: {error}"]) from error
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise ConfigError(
            [f"cannot listen on {host} port {port}: {error.strerror}; try another --host or --port"]
        ) from error
    return sock


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """The server's URL for a browser on this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host and '[' not in host else host}:{port}"


class Announcer(LinkObserver):
    """Reports an engine's state to the terminal, the log and its supervisor. `of`: the same for one
    of several engines; the terminal is told of the first one that is ready."""

    def __init__(self, url: str, supervisor: ChildProcess | None, name: str = "") -> None:
        self.url = url
        self._supervisor = supervisor
        self._name = name
        self._whole: Announcer = self
        self._last = ("", 0.0)
        self._listening = False
        self._ready: api.Ready | None = None
        self._told_by = ""
        self.settings_taken = asyncio.Event()
        """An engine has taken its settings."""
        self.tell_lost: Callable[[str], None] = lambda _: None
        """Called when an engine is lost, with why."""
        self.encoder: ChildProcess | None = None
        """The encoder process here: an engine that is ready has met it."""

    def of(self, name: str, supervisor: ChildProcess | None) -> Announcer:
        """The announcer of one engine."""
        one = Announcer(self.url, supervisor, name)
        one._whole = self
        return one

    def listening(self) -> None:
        """The server accepts connections."""
        self._listening = True
        if self._ready is not None:
            self._say_ready(self._ready.model)

    def engine_loading(self, loading: api.Loading) -> None:
        if loading.what != api.LIBRARIES:
            self._whole.settings_taken.set()
        share = loading.done / loading.total if loading.total else 0.0
        what, said = self._last
        if loading.what == what and share - said < PROGRESS_STEP:
            return
        self._last = (loading.what, share)
        who = "" if self._name in ("", "engine") else f"{self._name}: "
        log.info("%sloading: %s%s", who, loading.what, f" {share:.0%}" if loading.total else "")

    def engine_ready(self, ready: api.Ready) -> None:
        if self._supervisor is not None:
            self._supervisor.healthy()
        self._whole.settings_taken.set()
        self._whole.one_ready(self._name, ready)

    def one_ready(self, name: str, ready: api.Ready) -> None:
        """An engine is ready: of several, the first one tells."""
        if self.encoder is not None:
            self.encoder.healthy()
        self._told_by = self._told_by or name
        if self._told_by != name:
            return
        self._ready = ready
        if self._listening:
            self._say_ready(ready.model)

    def _say_ready(self, model: api.ModelInfo) -> None:
        device = f"  decoder on {model.device}: {model.device_reason}\n" if model.device else ""
        ears = f"  ears {model.ears}: {model.ears_reason}\n" if model.ears_reason else ""
        if model.ears_device not in ("", "cpu"):
            ears += f"  ears on {model.ears_device}\n"
        server = "".join(
            f"  LLM server, {name.replace('_', ' ')}: {fact}\n"
            for name, fact in model.llm_server.items()
        )
        print(
            f"\n  headstart is ready: {self.url}\n"
            f"  model {model.name}, {model.weights_bytes / 1e6:.0f} MB of weights, "
            f"loaded in {model.load_s:.1f} s\n{device}{ears}{server}",
            file=sys.stderr,
            flush=True,
        )

    def engine_lost(self, reason: str) -> None:
        who = "" if self._name in ("", "engine") else f"{self._name}: "
        self._whole.tell_lost(f"{who}{reason}")

    def engine_stalled(self, reason: str) -> None:
        if self._supervisor is not None:
            self._supervisor.kill(reason)


def _local_engines(
    settings: Settings, endpoints: Sequence[str], announcer: Announcer, encoder: str | None
) -> list[Member]:
    """The engine processes of this server, not yet started."""
    members = []
    for name, endpoint, share in zip(
        local.names(settings) if endpoints else [],
        endpoints,
        local.shares_here(settings) if endpoints else [],
        strict=True,
    ):
        link = EngineLink(endpoint, settings.engine_lost_after_s, name)
        child = local.engine_process(
            settings, link.endpoint, link, name=name, share=share, encoder=encoder
        )
        members.append(Member(link, child, announcer.of(name, child)))
    return members


async def _serve(
    settings: Settings,
    sock: socket.socket,
    private: Sequence[str],
    endpoint: str | None,
    announce: bool,
    encoder: str | None = None,
) -> None:
    """`private`: one address for each engine that is started here; `endpoint`: where others
    connect; `encoder`: address of the encoder process that is started here."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tasks.unhandled)
    # Until there is a gateway that can retire: SIGUSR1 would end this process in mid-start, or be
    # lost where it is the first one of a container.
    told_to_retire = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, told_to_retire.set)
    told_to_stop = _stop_start_on_sigterm(loop)  # until the server takes that signal itself
    url = url_of(sock, "http" if settings.tls_cert is None else "https")
    check_certificate(settings)
    read_keys(settings)  # report an invalid key file before the engine is started
    recording = None if settings.record is None else _recording(settings.record)
    traces = from_environment(os.environ)
    available = descriptors.prepare(settings.max_sessions)
    if is_open_to_others(settings):
        log.warning(
            "anybody who reaches %s may use this server: set api_keys (docs/security.md)",
            settings.host,
        )
    parts = _Parts.of(settings, private, endpoint, encoder, Announcer(url, None), traces, recording)
    parts.engines.start()
    if not private:
        parts.voice.start()
    gc.disable()  # until all is loaded: it would look through that again and again
    try:
        supervising = await parts.start_engines() if private else None
        # The rest of the gateway takes a second to import: in parallel with the engine's start.
        await asyncio.to_thread(import_rest)
        if supervising is not None:
            await parts.settings_taken(supervising)
            # The engine takes longest: until here it shares two cores with this process.
            parts.voice.start()
        gateway, server = await parts.load_gateway(settings, available)
        loop.remove_signal_handler(signal.SIGTERM)
        serving = tasks.awaited(server.serve(sockets=[sock]), "server")
        # Keep loaded objects out of garbage collection: this avoids pauses, and cycles left by a
        # session are found after dozens of sessions instead of hundreds.
        gc.collect()
        gc.freeze()
        gc.enable()
        measuring = tasks.own(gateway.loop_lag.run(), "loop lag", tasks.nothing_depends_on_it)
        retire = tasks.guard(lambda: gateway.retire(server.leave), "drain", server.leave_at_once)
        loop.add_signal_handler(signal.SIGUSR1, retire)
        if told_to_retire.is_set():
            retire()
        parts.say_listening(announce=announce)
        parts.record(gateway.dashboard)
        await (serving if supervising is None else _both(serving, supervising, server))
        measuring.cancel()
    except asyncio.CancelledError:
        if not told_to_stop.is_set():
            raise
    finally:
        gc.enable()
        await parts.close()


@dataclass
class _Parts:
    """What a server runs beside its listening socket; `close` ends what has been started."""

    announcer: Announcer
    engines: Engines
    voice: VoiceLink
    traces: Traces | None
    recording: RecordingFile | None
    recorder: Recorder | None = None
    decoders: Decoders | None = None
    decoders_start: asyncio.Task[None] | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        private: Sequence[str],
        endpoint: str | None,
        encoder: str | None,
        announcer: Announcer,
        traces: Traces | None,
        recording: RecordingFile | None,
    ) -> _Parts:
        """Nothing is started yet. `private`, `endpoint` and `encoder`: as in `_serve`."""
        if encoder is not None:
            announcer.encoder = local.encoder_process(settings, encoder)
        # Before the engines' sockets: an address without keys is refused, and they would stay open.
        port = None if endpoint is None else EnginePort(endpoint, settings.engine_keys)
        engines = Engines(
            _local_engines(settings, private, announcer, encoder),
            port,
            observe=lambda member: announcer.of(member.name, None),
            lost_after_s=settings.engine_lost_after_s,
        )
        voice = VoiceLink(functools.partial(choose, settings.voice))
        return cls(announcer, engines, voice, traces, recording)

    async def start_engines(self) -> asyncio.Task[None]:
        """Start the engines of this machine, and return the task that keeps them running."""
        supervising = tasks.awaited(supervise(self.engines, self.announcer.encoder), "supervisor")
        await self.engines.tried()
        return supervising

    async def settings_taken(self, supervising: asyncio.Task[None]) -> None:
        """Return once an engine has taken its settings, or takes long to. Raises what its end
        raised: whoever mistyped a model's name is told so before a voice and a page are there."""
        taken = tasks.awaited(self.announcer.settings_taken.wait(), "settings")
        await asyncio.wait(
            [supervising, taken],
            timeout=SETTINGS_WAIT_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        taken.cancel()
        if supervising.done():
            supervising.result()

    async def load_gateway(
        self, settings: Settings, available: descriptors.Descriptors
    ) -> tuple[Gateway, GatewayServer]:
        """The gateway and its HTTP server, which does not accept connections yet."""
        from headstart.gateway.server import assemble

        # Compiled once per machine, which takes a second.
        await asyncio.to_thread(assemble.native_audio)
        threads.start()
        if self.traces is not None:
            self.traces.start()
        self.decoders = assemble.DECODERS
        # Behind the voice, which like the engine needs a core: all are there before the engine is.
        self.decoders_start = tasks.own(
            start_behind(self.voice, self.decoders.start), "decoders", tasks.nothing_depends_on_it
        )
        gateway = assemble.make_gateway(settings, self.engines, self.voice, self.traces)
        gateway.descriptors = available
        self.announcer.tell_lost = gateway.engine_lost
        return gateway, assemble.make_server(settings, gateway)

    def say_listening(self, *, announce: bool) -> None:
        """Tell the log and the terminal that the server accepts connections; `announce`: whoever
        reads standard output, too."""
        log.info("listening on %s; engine: %s", self.announcer.url, self.engines.state)
        if self.engines.endpoint is not None:
            log.info("engines connect at %s", self.engines.endpoint)
        self.announcer.listening()
        if announce:
            print(json.dumps({"url": self.announcer.url, "pid": os.getpid()}), flush=True)

    def record(self, dashboard: Dashboard) -> None:
        """Record the dashboard's feed, if that was asked for."""
        if self.recording is not None:
            from headstart.gateway.server import assemble

            self.recorder = assemble.Recorder(dashboard, self.recording)
            self.recorder.start()

    async def close(self) -> None:
        if self.recorder is not None:
            await self.recorder.stop()
        elif self.recording is not None:
            self.recording.close()
        self.engines.close()
        if self.traces is not None:
            await self.traces.close()
        if self.decoders_start is not None:
            self.decoders_start.cancel()
        if self.decoders is not None:
            await self.decoders.stop()
        await self.voice.stop()
        children = [m.child for m in self.engines.members.values() if m.child is not None]
        children += [self.announcer.encoder] if self.announcer.encoder is not None else []
        await asyncio.gather(*(child.stop() for child in children))


async def start_behind(voice: VoiceLink, start: Callable[[], None]) -> None:
    """Call `start` once the voice is loaded or found to be missing, after `VOICE_WAIT_S` at the
    latest: it may have to be downloaded first."""
    # Not `wait_for`: Python 3.11's loses a cancellation in the moment of an answer, and what is
    # started behind the server's end would stay.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VOICE_WAIT_S):
            await voice.tried.wait()
    start()


def _stop_start_on_sigterm(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Cancel the current task at the first SIGTERM, and set what is returned. By itself the signal
    ends a process without a word, and is lost where it is the first one of a container."""
    starting, told = asyncio.current_task(loop), asyncio.Event()
    assert starting is not None

    def stop() -> None:
        if not told.is_set():
            log.info("told to stop before it was listening")
            told.set()
            starting.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    return told


async def _both(
    serving: asyncio.Task[None], supervising: asyncio.Task[None], server: GatewayServer
) -> None:
    """Until the server ends. An engine that cannot be kept running ends the server too."""
    await asyncio.wait({serving, supervising}, return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        server.leave()
        await serving
        await supervising  # raises the error that ended it
        return
    supervising.cancel()
    await asyncio.gather(supervising, return_exceptions=True)
    await serving


def import_rest() -> None:
    """Import what the gateway needs once it listens."""
    # numpy's pool, here and in the voice, waits for work by spinning, and gets none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Of openai's types it needs a third.
    import_alone("openai.types.realtime", NOT_OURS)
    importlib.import_module("headstart.gateway.server.assemble")


def _recording(path: Path) -> RecordingFile:
    from headstart.gateway.dashboard.recorder import RecordingFile

    return RecordingFile(path)


def check_certificate(settings: Settings) -> None:
    """Raises `ConfigError` for a certificate or key that cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for name, file in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if not file.is_file():
            raise ConfigError([f"{name}: there is no file {file}"])
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # includes SSLError
        raise ConfigError(
            [f"tls_cert {settings.tls_cert}, tls_key {settings.tls_key}: {error}"]
        ) from error


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def _set_up_logging(settings: Settings) -> None:
    log_lines.set_up(settings.log_level.upper())
    if settings.log_level != "debug":
        for name in ("uvicorn.error", "uvicorn.access", "asyncio", "aioice", "aiortc"):
            logging.getLogger(name).setLevel(logging.WARNING)
    for warning in near_misses(os.environ):
        log.warning("%s", warning)
