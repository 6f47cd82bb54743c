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
import shlex
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry

from headstart.engine import api
from headstart.gateway.audio.native import native_audio
from headstart.gateway.auth.access import is_open_to_others, read_keys
from headstart.gateway.config import Settings, near_misses
from headstart.gateway.connection.pending import PendingLimits
from headstart.gateway.connection.registry import ResumeMetrics
from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.dashboard.recorder import Recorder, RecordingFile
from headstart.gateway.engine_link import (
    EngineLink,
    LinkObserver,
    private_endpoint,
    shared_endpoint,
)
from headstart.gateway.errors import ConfigError, PortInUse
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.parse import prepare
from headstart.gateway.runtime import log_lines, tasks, threads
from headstart.gateway.runtime.child_process import ChildProcess, Pipes, restarts
from headstart.gateway.server import descriptors
from headstart.gateway.server.app import Gateway, build_app
from headstart.gateway.server.http_server import GatewayServer
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.collectors import BuildCollector, CountsCollector, LagCollector
from headstart.gateway.telemetry.metrics import Metrics, MetricsPage
from headstart.gateway.telemetry.observer import Observers
from headstart.gateway.tracing.traces import Traces, from_environment
from headstart.gateway.transport.websocket.channel import RealtimeProtocol
from headstart.gateway.tts.choose import choose
from headstart.gateway.tts.link import VoiceLink
from headstart.gateway.video.decode_pool import DECODERS

log = logging.getLogger("headstart.serve")

PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 40.0
GRACEFUL_SHUTDOWN_S = 3
BACKLOG = 2048
PROGRESS_STEP = 0.1
"""Share of a loading step after which the next log line is due."""


def serve(settings: Settings, announce: bool = False) -> None:
    """`headstart serve`: until SIGTERM or SIGINT. Raises `GatewayError`s that end it."""
    _set_up_logging(settings)
    sock = bind(settings.host, settings.port)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        endpoint = settings.engine_endpoint or stack.enter_context(private_endpoint())
        _run(_serve(settings, sock, endpoint, supervised=True, announce=announce))


def web(settings: Settings, announce: bool = False) -> None:
    """`headstart web`: the gateway alone; the engine connects from another process."""
    _set_up_logging(settings)
    with bind(settings.host, settings.port) as sock:
        endpoint = settings.engine_endpoint or shared_endpoint()
        _run(_serve(settings, sock, endpoint, supervised=False, announce=announce))


def engine(settings: Settings) -> None:
    """`headstart engine`: the supervised engine alone, for a gateway in another process."""
    _set_up_logging(settings)
    endpoint = settings.engine_endpoint or shared_endpoint()
    _run(_supervise(engine_process(settings, endpoint)))


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


def engine_argv(settings: Settings, endpoint: str) -> list[str]:
    """The command line of the engine process."""
    module = "headstart.gateway.fake_engine" if settings.engine == "fake" else "headstart.engine"
    argv = [sys.executable, "-P", "-m", module, "--endpoint", endpoint, "--model", settings.model]
    argv += ["--kv-pool-mib", str(settings.kv_pool_mib), "--kv-dtype", settings.kv_dtype]
    argv += ["--ears-language", settings.ears_language, "--adapter", settings.adapter]
    if settings.ears is not None:
        argv += ["--ears", settings.ears]
        argv += ["--ears-sessions", str(settings.ears_sessions)]
        argv += ["--chunk-ms", str(settings.chunk_ms)]
    argv += ["--weights", settings.weights, "--tail", settings.tail]
    argv += ["--transcribe", settings.transcribe]
    if settings.size is not None:
        argv += ["--size", settings.size]
    if settings.llm is not None and settings.engine == "local":
        for url in settings.llm_urls:
            argv += ["--llm", url]
        argv += ["--llm-sessions", str(settings.llm_sessions), "--senses", settings.senses]
        argv += ["--window-tokens", str(settings.window_tokens)]
        named = {"model": settings.llm_model, "key-env": settings.llm_key_env}
        named |= {"tokenizer": settings.tokenizer}
        for name, value in named.items():
            flag = f"--{name}" if name == "tokenizer" else f"--llm-{name}"
            argv += [flag, value] if value is not None else []
    if settings.threads:
        argv += ["--threads", str(settings.threads)]
    return argv + shlex.split(settings.engine_args)


def engine_environment(settings: Settings) -> dict[str, str]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if settings.threads:
        environment["OMP_NUM_THREADS"] = str(settings.threads)
    return environment


def engine_process(
    settings: Settings, endpoint: str, link: EngineLink | None = None
) -> ChildProcess:
    """The supervised engine process; `link` owns its address and is told when it dies."""

    @contextlib.contextmanager
    def connect() -> Iterator[Pipes]:
        if link is not None:
            link.check_address()
        yield Pipes()

    def lost(how: str) -> None:
        if link is not None:
            link.lost(f"it ended: {how}")

    argv, environment = engine_argv(settings, endpoint), engine_environment(settings)
    return ChildProcess("engine", argv, environment=environment, connect=connect, on_exit=lost)


class Announcer(LinkObserver):
    """Reports the engine's state to the terminal, the log and the supervisor."""

    def __init__(self, url: str, supervisor: ChildProcess | None) -> None:
        self._url = url
        self._supervisor = supervisor
        self._last = ("", 0.0)
        self._listening = False
        self._ready: api.Ready | None = None
        self.tell_lost: Callable[[str], None] = lambda _: None
        """Called when the engine is lost, with why."""

    def listening(self) -> None:
        """The server accepts connections."""
        self._listening = True
        if self._ready is not None:
            self._say_ready(self._ready.model)

    def engine_loading(self, loading: api.Loading) -> None:
        share = loading.done / loading.total if loading.total else 0.0
        what, said = self._last
        if loading.what == what and share - said < PROGRESS_STEP:
            return
        self._last = (loading.what, share)
        log.info("loading: %s%s", loading.what, f" {share:.0%}" if loading.total else "")

    def engine_ready(self, ready: api.Ready) -> None:
        if self._supervisor is not None:
            self._supervisor.healthy()
        self._ready = ready
        if self._listening:
            self._say_ready(ready.model)

    def _say_ready(self, model: api.ModelInfo) -> None:
        ears = f"  ears {model.ears}: {model.ears_reason}\n" if model.ears_reason else ""
        server = "".join(
            f"  LLM server, {name.replace('_', ' ')}: {fact}\n"
            for name, fact in model.llm_server.items()
        )
        print(
            f"\n  headstart is ready: {self._url}\n"
            f"  model {model.name}, {model.weights_bytes / 1e6:.0f} MB of weights, "
            f"loaded in {model.load_s:.1f} s\n{ears}{server}",
            file=sys.stderr,
            flush=True,
        )

    def engine_lost(self, reason: str) -> None:
        self.tell_lost(reason)

    def engine_stalled(self, reason: str) -> None:
        if self._supervisor is not None:
            self._supervisor.kill(reason)


async def _serve(
    settings: Settings, sock: socket.socket, endpoint: str, supervised: bool, announce: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(tasks.unhandled)
    url = url_of(sock, "http" if settings.tls_cert is None else "https")
    check_certificate(settings)
    read_keys(settings)  # report an invalid key file before the engine is started
    recording = None if settings.record is None else RecordingFile(settings.record)
    traces = from_environment(os.environ)
    available = descriptors.prepare(settings.max_sessions)
    if is_open_to_others(settings):
        log.warning(
            "anybody who reaches %s may use this server: set api_keys (docs/security.md)",
            settings.host,
        )
    link = EngineLink(endpoint, settings.engine_lost_after_s)
    supervisor = None
    supervising = None
    recorder = None
    if supervised:
        supervisor = engine_process(settings, link.endpoint, link)
    announcer = link.observer = Announcer(url, supervisor)
    voice = VoiceLink(functools.partial(choose, settings.voice))
    link.start()
    voice.start()
    try:
        if supervisor is not None:
            supervising = tasks.awaited(supervisor.run(), "supervisor")
        # The protocol's schema takes a second or two to import: in parallel with the engine's
        # start.
        for module in (
            "headstart.gateway.session.session",
            "headstart.gateway.transport.webrtc.calls",
        ):
            await asyncio.to_thread(importlib.import_module, module)
        await asyncio.to_thread(native_audio)  # compiled once per machine, which takes a second
        threads.start()
        if traces is not None:
            traces.start()
        DECODERS.start()
        gateway = make_gateway(settings, link, supervisor, voice, traces)
        gateway.descriptors = available
        announcer.tell_lost = gateway.engine_lost
        limits = PendingLimits(pending_max=available.pending_max)
        server = GatewayServer(uvicorn_config(settings, gateway), gateway, limits)
        serving = tasks.awaited(server.serve(sockets=[sock]), "server")
        # Keep loaded objects out of garbage collection: this avoids pauses, and cycles left by a
        # session are found after dozens of sessions instead of hundreds.
        gc.collect()
        gc.freeze()
        measuring = tasks.own(gateway.loop_lag.run(), "loop lag", tasks.nothing_depends_on_it)
        log.info("listening on %s; engine: %s", url, link.state)
        announcer.listening()
        if announce:
            print(json.dumps({"url": url, "pid": os.getpid()}), flush=True)
        if recording is not None:
            recorder = Recorder(gateway.dashboard, recording)
            recorder.start()
        await (serving if supervising is None else _both(serving, supervising, server))
        measuring.cancel()
    finally:
        if recorder is not None:
            await recorder.stop()
        elif recording is not None:
            recording.close()
        link.close()
        if traces is not None:
            await traces.close()
        await DECODERS.stop()
        await voice.stop()
        if supervisor is not None:
            await supervisor.stop()


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


async def _supervise(supervisor: ChildProcess) -> None:
    loop = asyncio.get_running_loop()
    running = tasks.awaited(supervisor.run(), "supervisor")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def make_gateway(
    settings: Settings,
    link: EngineLink,
    supervisor: ChildProcess | None,
    voice: VoiceLink | None = None,
    traces: Traces | None = None,
) -> Gateway:
    """The gateway with real sessions, and one set of metrics for all of them."""
    from headstart.gateway.session.session import Session
    from headstart.gateway.transport.webrtc.call_metrics import CallMetrics
    from headstart.gateway.transport.webrtc.calls import Calls

    prepare()  # otherwise the first event of each type would pay for it on the loop
    metrics = Metrics(settings.latency_budget_ms, legacy=settings.legacy_metrics)
    hub = Hub()
    ids = IdMaker()
    restarts_counted = 0

    def make_session(session_id: str, engine_ready: bool, model_name: str) -> Session:
        return Session(
            session_id,
            settings,
            ids,
            metrics,
            engine_ready=engine_ready,
            model_name=model_name,
            now_ns=time.monotonic_ns(),
            wall_s=time.time(),
            stopwatch=time.perf_counter_ns,
            speaks=voice is not None and voice.status.speaks,
            model=None if link.ready is None else link.ready.model,
            observer=hub if traces is None else Observers(hub, traces),
        )

    def engine_restarts() -> int:
        return supervisor.restarts if supervisor is not None else link.counters.losses

    def page() -> MetricsPage:
        nonlocal restarts_counted
        metrics.engine_up.set(link.is_ready)
        metrics.engine_restarts.inc(engine_restarts() - restarts_counted)
        restarts_counted = engine_restarts()
        if link.stats is not None:
            metrics.engine(link.stats)
        return metrics.page()

    resumes = ResumeMetrics(metrics.registry)
    gateway = Gateway(
        settings, link, make_session, page, engine_restarts, voice, resumes, hub, metrics
    )
    register(metrics.registry, gateway)
    gateway.calls = Calls(gateway, CallMetrics(metrics.registry))
    return gateway


def register(registry: CollectorRegistry, gateway: Gateway) -> None:
    """What others count anyway, for `/metrics` to show."""

    def refused() -> dict[str, float]:
        stats = gateway.link.stats
        by_engine = 0 if stats is None else stats.sessions_refused
        return {"gateway": gateway.sessions_refused, "engine": by_engine}

    for family, look in (
        (names.CONNECTIONS_CUT, lambda: gateway.dropped_connections),
        (names.SESSIONS_STUCK, lambda: {"": gateway.sessions_stuck}),
        (names.SESSIONS_REFUSED, refused),
        (names.TASK_FAILURES, lambda: tasks.failures),
        (names.CHILD_RESTARTS, lambda: restarts),
    ):
        registry.register(CountsCollector(family, look))
    registry.register(LagCollector(gateway.loop_lag))
    registry.register(BuildCollector(lambda: gateway.model_name))


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


def uvicorn_config(settings: Settings, gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(gateway),
        ws=RealtimeProtocol,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=PING_INTERVAL_S,
        ws_ping_timeout=PING_TIMEOUT_S,
        # Compression costs CPU time and latency, and base64 audio hardly shrinks.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


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
