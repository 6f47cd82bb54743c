"""An encoder process: pictures come from any number of engines, and embeddings go back.

    ROUTER ─▶ known? ── yes ──────────────────────────────────▶ reply
                │ no     being encoded? ── yes ─▶ wait for it ──┤
                ▼                                               │
              queue (engines in turn) ─▶ thread: batch ─▶ cache ┘

- Results are kept by content, model-wide, but shared within a share domain only
  (`headstart.engine.api.Open`). So a picture that two engines show costs one encode.
- Bounds: `limit` pictures of each engine wait, `MAX_WAITING_BYTES` of pixels in all, and
  `MAX_REQUESTS` requests; beyond these a request fails with `encoder_busy`. A reply to an engine
  that does not read is dropped.
- A request ends with its limit of time, or when it is cancelled: its pictures leave the queue,
  unless others wait for them. A picture that is being encoded is encoded to its end.
- What is no message of ours is logged and answered by nothing. Peers are those that the keys admit,
  or processes of this machine.
- A batch that takes longer than `HANG_S` ends the process: its supervisor starts it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import zmq
from zmq.auth.thread import ThreadAuthenticator

from headstart.engine.api.keys import Accepted, check_address, own_pair
from headstart.engine.background_thread import BackgroundThread
from headstart.engine.encoders.errors import EncoderBusy, EncoderFailed, WrongEncoder
from headstart.engine.encoders.messages import (
    MAX_PIXELS_BYTES,
    BadMessage,
    Block,
    Cancel,
    Encode,
    Encoded,
    Failed,
    Picture,
    Reply,
    blocks_of,
    header,
    read_request,
)
from headstart.engine.errors import EngineError
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.vision.encoder_cache import EncoderCache

log = logging.getLogger("headstart.engine")

IDLE_WAIT_MS = 200
MESSAGES_AT_ONCE = 64
MAX_WAITING_BYTES = 512 << 20
MAX_REQUESTS = 1024
"""Of all engines, which have two under way at most: those that join a picture add no bytes, and
names cost nothing."""
MAX_LOGGED = 20  # bad messages: whoever sends one may send a million
HANG_S = 300.0
_LOWER_PRIORITY = 5  # nice levels below engines
_ENTRY_BYTES = 256  # of a cached result beside its embeddings

Rgb = npt.NDArray[np.uint8]


class UnitEncoder(Protocol):
    """What encodes, without knowing who asks."""

    def tokens(self, pictures: Sequence[Rgb], *, still: bool) -> int:
        """About how many tokens a unit takes."""
        ...

    def encode(self, units: Sequence[Sequence[Rgb]], *, still: bool) -> list[list[Picture] | None]:
        """Encode units of one size; None for a still that the model treats like a frame."""
        ...


@dataclass(eq=False, slots=True)
class _Request:
    """One message of an engine, while any of its units is being encoded."""

    peer: bytes
    encode: Encode
    until_s: float
    jobs: list[EncoderJob] = field(default_factory=list)
    encode_ms: float = 0.0

    @property
    def is_done(self) -> bool:
        return all(job.is_done for job in self.jobs)


@dataclass(eq=False, slots=True)
class EncoderJob:
    """One vision unit or still, and who waits for it."""

    key: bytes
    pictures: list[Rgb]
    still: bool
    waiters: list[_Request] = field(default_factory=list)
    result: list[Picture] | None = None
    error: EngineError | None = None
    is_done: bool = False

    @property
    def num_bytes(self) -> int:
        return sum(rgb.nbytes for rgb in self.pictures)


class EncoderServer:
    """Serves `encoder` at `endpoint`. Raises `BadKeys`, or `zmq.ZMQError` if the address cannot be
    bound."""

    def __init__(
        self,
        endpoint: str,
        encoder: UnitEncoder,
        identity: str,
        queue: EncodeQueue[EncoderJob],
        cache: EncoderCache[tuple[list[Picture] | None]],
        *,
        keys: Path | None = None,
        prepare: Callable[[], None] = lambda: None,
        hang_s: float = HANG_S,
    ) -> None:
        self.stopping = False
        self.encoded = self.hits = self.joined = 0
        """Units that were encoded, taken from the cache, or being encoded for another one."""
        self._encoder, self.identity, self._queue, self._cache = encoder, identity, queue, cache
        self._hang_s = hang_s
        self._requests: dict[tuple[bytes, int], _Request] = {}
        self._jobs: dict[bytes, EncoderJob] = {}  # those that are not done
        self._waiting_bytes = 0
        self._bad = 0
        self._began_s: float | None = None  # of the batch that is being encoded
        self._context = zmq.Context()
        self._zap: ThreadAuthenticator | None = None
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(64)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_PIXELS_BYTES)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a full or missing peer is an error
        try:
            check_address(endpoint, keys)
            if keys is not None:
                self._lock(keys)
            self._socket.bind(endpoint)
        except BaseException:
            self._close_sockets()
            raise
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = BackgroundThread(
            "encoder",
            lambda: queue.take(time.monotonic_ns()),
            self._encode,
            nice=_LOWER_PRIORITY,
            instead="this process ends",
            prepare=prepare,
        )
        self._thread.start()
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._thread.fileno(), zmq.POLLIN)

    def _lock(self, folder: Path) -> None:
        pair = own_pair(folder)
        accepted = Accepted(folder)
        self._zap = ThreadAuthenticator(self._context)
        self._zap.start()
        self._zap.configure_curve_callback("*", accepted)
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = pair.public, pair.secret

    def serve(self) -> None:
        """Run until `stopping` is set, or the thread has died or hangs."""
        while not self.stopping and not self._is_broken():
            self.pump(IDLE_WAIT_MS)

    def _is_broken(self) -> bool:
        """Whether nothing is encoded any more, or the address is gone."""
        began_s, path = self._began_s, Path(self.endpoint.removeprefix("ipc://"))
        if self._thread.died:
            return True
        if began_s is not None and time.monotonic() - began_s > self._hang_s:
            log.error("a batch takes longer than %.0f s: this process ends", self._hang_s)
            return True
        named = self.endpoint.startswith("ipc:///")
        if named and not path.exists():
            log.error("%s was removed, by a cleaner perhaps: this process ends", path)
            return True
        return False

    def close(self) -> None:
        with self._thread.lock:
            self._queue.clear()
        self._thread.close(wait_s=1.0)
        self._close_sockets()

    def _close_sockets(self) -> None:
        if self._zap is not None:
            self._zap.stop()
        self._socket.close(linger=0)
        self._context.term()

    # --- requests --------------------------------------------------------------------------------

    def pump(self, wait_ms: int) -> None:
        """Take what has come, waiting up to `wait_ms` for the first, and answer what is done."""
        ready = dict(self._poller.poll(wait_ms))
        if self._thread.fileno() in ready:
            self._collect()
        for _ in range(MESSAGES_AT_ONCE if self._socket in ready else 0):
            try:
                peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            self._received(peer.bytes, frames)
        now_s = time.monotonic()
        for request in [r for r in self._requests.values() if r.until_s < now_s]:
            self._end(request)

    def _received(self, peer: bytes, frames: Sequence[zmq.Frame]) -> None:
        try:
            request, pictures = read_request([frame.buffer for frame in frames])
        except BadMessage as error:
            self._bad += 1
            if self._bad <= MAX_LOGGED:
                log.error("got what is no request: %s", error)
            return
        if isinstance(request, Cancel):
            known = self._requests.get((peer, request.number))
            if known is not None:
                self._end(known)
            return
        if request.identity != self.identity:
            self._send(peer, Failed(request.number, WrongEncoder.code, self.identity))
            return
        self._begin(peer, request, pictures)

    def _begin(self, peer: bytes, encode: Encode, pictures: list[Rgb]) -> None:
        if len(self._requests) >= MAX_REQUESTS:
            self._send(peer, Failed(encode.number, EncoderBusy.code))
            return
        until_s = time.monotonic() + max(0.0, encode.within_ms) / 1e3  # in this order NaN gives 0
        request = _Request(peer, encode, until_s)
        rest = iter(pictures)
        for unit in encode.units:
            shown = [next(rest) for _ in unit.sizes]
            job = self._job(encode, shown, unit.domain)
            if job is None:
                self._end(request)
                self._send(peer, Failed(encode.number, EncoderBusy.code))
                return
            request.jobs.append(job)
            job.waiters.append(request)
        if request.is_done:
            self._answer(request)
        else:
            self._requests[peer, encode.number] = request

    def _job(self, encode: Encode, pictures: list[Rgb], domain: bytes) -> EncoderJob | None:
        """One that is done, under way or new; None if too many wait."""
        key = _key(pictures, domain, still=encode.still)
        if (known := self._cache.get(key)) is not None:
            self.hits += 1
            return EncoderJob(key, pictures, encode.still, result=known[0], is_done=True)
        if key in self._jobs:
            self.joined += 1
            return self._jobs[key]
        job = EncoderJob(key, pictures, encode.still)
        if self._waiting_bytes + job.num_bytes > MAX_WAITING_BYTES:
            return None
        now_ns = time.monotonic_ns()
        with self._thread.lock:
            taken = self._queue.push(
                job,
                encode.engine,
                tokens=self._encoder.tokens(pictures, still=encode.still),
                level=(encode.still, tuple(rgb.shape for rgb in pictures)),
                due_ns=now_ns,
                now_ns=now_ns,
            )
            if not taken:
                return None
            self._thread.notify()
        self._jobs[key] = job
        self._waiting_bytes += job.num_bytes
        return job

    def _end(self, request: _Request) -> None:
        """Nobody waits for it any more, and so perhaps for its units."""
        self._requests.pop((request.peer, request.encode.number), None)
        for job in request.jobs:
            if request in job.waiters:
                job.waiters.remove(request)
            if job.waiters or job.is_done:
                continue
            with self._thread.lock:
                removed = self._queue.remove(job)
            if removed:
                self._settle(job)

    def _settle(self, job: EncoderJob) -> None:
        job.is_done = True
        if self._jobs.pop(job.key, None) is not None:
            self._waiting_bytes -= job.num_bytes

    # --- answers ---------------------------------------------------------------------------------

    def _collect(self) -> None:
        for job in self._thread.collect():
            if job.error is None:
                size_bytes = sum(each.vectors.nbytes + _ENTRY_BYTES for each in job.result or ())
                self._cache.put(job.key, (job.result,), size_bytes + _ENTRY_BYTES)
            self._settle(job)
            for request in list(job.waiters):
                key = request.peer, request.encode.number
                if request.is_done and self._requests.pop(key, None) is not None:
                    self._answer(request)

    def _answer(self, request: _Request) -> None:
        encode = request.encode
        errors = [job.error for job in request.jobs if job.error is not None]
        if errors:
            error = errors[0]
            detail = "" if isinstance(error, EncoderFailed) else str(error)
            self._send(request.peer, Failed(encode.number, EncoderFailed.code, detail))
            return
        told: list[tuple[Block, ...] | None] = []
        content: list[memoryview] = []
        for job in request.jobs:
            if job.result is None:
                told.append(None)
                continue
            blocks, vectors = blocks_of(job.result)
            told.append(blocks)
            content += vectors
        reply = Encoded(encode.number, self.identity, tuple(told), request.encode_ms)
        self._send(request.peer, reply, content)

    def _send(self, peer: bytes, reply: Reply, content: Sequence[memoryview] = ()) -> None:
        try:
            self._socket.send_multipart([peer, header(reply), *content], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.warning("an engine is gone or does not read: dropped its answer")

    # --- the thread ------------------------------------------------------------------------------

    def _encode(self, jobs: Sequence[EncoderJob]) -> None:
        began_s = self._began_s = time.monotonic()
        try:
            units = [job.pictures for job in jobs]
            found = self._encoder.encode(units, still=jobs[0].still)
        except Exception as error:
            if len(jobs) > 1:  # one picture's fault is not the other ones'
                for job in jobs:
                    self._encode([job])
                return
            log.exception("a picture could not be encoded")
            # What is wrong with it may be told; what is wrong here is for the log.
            jobs[0].error = error if isinstance(error, EngineError) else EncoderFailed()
            return
        finally:
            self._began_s = None
        took_s = time.monotonic() - began_s
        for job, result in zip(jobs, found, strict=True):
            job.result = result
            for request in list(job.waiters):
                request.encode_ms += took_s * 1e3
        self.encoded += len(jobs)
        self._queue.together.observe(len(jobs), int(took_s * 1e9))


def _key(pictures: Sequence[Rgb], domain: bytes, *, still: bool) -> bytes:
    shapes = repr((still, [rgb.shape for rgb in pictures])).encode()
    content = blake2b(key=blake2b(shapes + domain, digest_size=32).digest(), digest_size=16)
    for rgb in pictures:
        content.update(np.ascontiguousarray(rgb).data)
    return content.digest()
