"""Decodes clients' images in other processes, serving sessions in turn.

    run(owner, pictures) ─▶ FairQueue ─▶ a thread each ─▶ decode_worker: any image
                                                      └─▶ decode_worker: small ones only

One image per session is decoded at a time. A small image (`is_small`: a camera frame, a screenshot)
waits only for other small ones, because one process takes nothing else. If an image takes longer
than `LIMIT_S` its process is killed and replaced; an image that crashes the decoder has the same
effect. In both cases, and if an image needs more than `MEMORY_MIB`, the client gets an error. The
processes are supervised on the loop (`headstart.gateway.runtime.child_process`); images are sent
and received on the threads.

Bound: a session has one event's images (`limits.MAX_EVENT_PICTURES`) and one camera frame in
progress; the runner reads no further event until an item's images are decoded.

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import SERVER_ERROR, ProtocolError
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import ChildProcess, Pipes
from headstart.gateway.runtime.fair_queue import FairQueue
from headstart.gateway.video.decode import DecodedImage, Encoded, Outcome, is_small
from headstart.gateway.video.decode_worker import (
    Gone,
    Reply,
    Request,
    read_exactly,
    read_message,
    send_message,
    to_decoded_image,
)

log = logging.getLogger("headstart.pictures")

LIMIT_S = 20.0
"""Per image; the most expensive ones allowed take two or three seconds on an idle core, and run at
lower priority than speech (`decode_worker.NICENESS`)."""
MEMORY_MIB = 768
"""Per process, beyond its own 50 MiB: 40 million 16-bit pixels and their conversion take 500, and
OpenCV, which the first scored frame loads, maps 170."""
SEND_CHARS = 1 << 20
LANES = (False, True)
"""Whether a decoder takes small pictures only."""

Answer = DecodedImage | ProtocolError


class NoDecoder(Exception):
    """No process can be started at the moment."""


class ProcessDecoder:
    """A decoder process. `run` supervises it on the loop; `decode` is called on its own thread."""

    def __init__(self, limit_s: float = LIMIT_S, memory_mib: int = MEMORY_MIB) -> None:
        self._limit_s = limit_s
        self._connected = threading.Condition()
        self._socket: socket.socket | None = None  # to the newest process
        self._in_use: socket.socket | None = None  # what `decode` waits for
        self._greeted: socket.socket | None = None  # whose process has begun to work
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        module = "headstart.gateway.video.decode_worker"
        self._child = ChildProcess(
            "decoder",
            [sys.executable, "-P", "-m", module, str(memory_mib)],
            # The threads' stacks would count as memory, and it needs none.
            environment=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            connect=self._connect,
            never_gives_up=True,
        )

    @property
    def pid(self) -> int | None:
        """The process id; None: there is no process at the moment."""
        return self._child.pid

    async def run(self) -> None:
        """Keep the process running until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._child.run()
        finally:
            self._loop = None
            self._use(None)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Pipes]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                yield Pipes(stdin=theirs.fileno(), stdout=DEVNULL)
            except BaseException:
                ours.close()
                raise
        self._use(ours)

    def _use(self, connection: socket.socket | None) -> None:
        with self._connected:
            before, self._socket = self._socket, connection
            if before is not None and before is self._in_use:
                _shut(before)  # `decode` closes it
            elif before is not None:
                before.close()
            self._connected.notify_all()

    def stop(self) -> None:
        """From any thread: end all waits for an image."""
        with self._connected:
            self._stopping = True
            if self._socket is not None:
                _shut(self._socket)
            self._connected.notify_all()

    def decode(self, encoded: Encoded, size: api.PictureSize) -> Answer:
        """The image, or its error. Raises `NoDecoder`."""
        connection = self._wait_for_process()
        timed = _Timed(connection, self._limit_s)
        try:
            self._greet(timed, connection)
            return self._exchange(timed, encoded, size)
        except TimeoutError:
            problem = f"Expected a picture that is decoded within {self._limit_s:g} s."
        except (Gone, OSError):
            problem = "It breaks the decoder."
        finally:
            self._release(connection)
        log.warning("a picture's decoder was lost: %s", problem)
        self._lose(connection, problem)
        return errors.invalid_image(encoded.param, problem)

    def _wait_for_process(self) -> socket.socket:
        """The socket to a process that seems alive. Raises `NoDecoder`."""
        with self._connected:
            if not self._connected.wait_for(self._is_connected, self._limit_s):
                raise NoDecoder(f"no process could be started within {self._limit_s:g} s")
            if self._stopping or self._socket is None:
                raise NoDecoder("the server is ending")
            self._in_use = self._socket
            return self._socket

    def _release(self, connection: socket.socket) -> None:
        with self._connected:
            self._in_use = None
            if self._socket is not connection:
                connection.close()

    def _is_connected(self) -> bool:
        """Or stopped. The socket of a dead process is closed before its death is noticed."""
        if self._stopping or self._socket is None:
            return self._stopping
        self._socket.settimeout(0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _greet(self, timed: _Timed, connection: socket.socket) -> None:
        """The first image waits until the process has started. A later death is caused by the
        image, and the next process is started at once."""
        if self._greeted is not connection:
            read_message(timed, Reply)
            self._greeted = connection
        self._on_loop(self._child.healthy)

    def _lose(self, connection: socket.socket, problem: str) -> None:
        """Kill the process, if it is still this one, so that another one is started."""
        with self._connected:
            if self._socket is not connection:
                return
            self._socket = None
            connection.close()
        self._on_loop(self._child.kill, problem)

    def _on_loop(self, call: Callable[..., None], *arguments: str) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the process with it
                guarded = tasks.guard(call, "picture decoders", tasks.nothing_depends_on_it)
                loop.call_soon_threadsafe(guarded, *arguments)

    def _exchange(self, timed: _Timed, encoded: Encoded, size: api.PictureSize) -> Answer:
        text = encoded.text
        request = Request(
            len(text),
            encoded.param,
            encoded.bare_base64,
            size.short_side,
            size.pixels,
            encoded.before,
        )
        send_message(timed, request)
        for at in range(0, len(text), SEND_CHARS):  # releases the interpreter lock
            timed.sendall(text[at : at + SEND_CHARS].encode("ascii", "replace"))
        reply = read_message(timed, Reply)
        if reply.error is not None:
            code, message = reply.error
            return ProtocolError(code, message, param=encoded.param)
        return to_decoded_image(reply, bytes(read_exactly(timed, reply.rgb_bytes)))


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the process is gone
        connection.shutdown(socket.SHUT_RDWR)


class _Timed:
    """A socket with a total time limit in s; then it raises TimeoutError."""

    def __init__(self, connection: socket.socket, limit_s: float) -> None:
        self._socket, self._end_s = connection, time.monotonic() + limit_s

    def recv_into(self, buffer: memoryview, /) -> int:
        self._socket.settimeout(self._left_s())
        return self._socket.recv_into(buffer)

    def sendall(self, data: bytes, /) -> None:
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def _left_s(self) -> float:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    encoded: Encoded
    size: api.PictureSize
    answer: Future[Answer] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Lane:
    """One decoder with its supervising task and the thread that waits for its images."""

    decoder: ProcessDecoder
    only_small: bool
    living: asyncio.Task[None]
    thread: threading.Thread | None = None
    stopping: bool = False

    def join(self) -> None:
        if self.thread is not None:
            self.thread.join()


class Decoders:
    """One decoder for any image and one for small ones, each with a thread and a supervising task.
    Call `start` before the first image, otherwise the first image does."""

    def __init__(self, make: Callable[[], ProcessDecoder] = ProcessDecoder) -> None:
        self._make = make
        self._queue: FairQueue[Hashable, _Job] = FairQueue()
        self._changed = threading.Condition()
        self._lanes: list[_Lane] = []

    def start(self) -> None:
        """On the loop: start the processes and the threads. Returns at once."""
        if self._lanes and not any(lane.living.done() for lane in self._lanes):
            return
        self._end_threads()  # of a loop that has ended
        for only_small in LANES:
            decoder = self._make()
            living = tasks.own(decoder.run(), "decoder", tasks.nothing_depends_on_it)
            lane = _Lane(decoder, only_small, living)
            lane.thread = threading.Thread(
                target=self._drive, args=(lane,), name="image decoding", daemon=True
            )
            self._lanes.append(lane)
            lane.thread.start()

    async def stop(self) -> None:
        """End the processes and the threads. Images queued or in progress are not decoded."""
        lanes = self._end_threads()
        for lane in lanes:
            lane.living.cancel()
        await asyncio.gather(*(lane.living for lane in lanes), return_exceptions=True)
        for lane in lanes:
            await asyncio.to_thread(lane.join)

    def _end_threads(self) -> list[_Lane]:
        with self._changed:
            lanes, self._lanes = self._lanes, []
            for lane in lanes:
                lane.stopping = True
            self._changed.notify_all()
        for lane in lanes:
            lane.decoder.stop()
        return lanes

    async def run(
        self, owner: Hashable, pictures: Sequence[Encoded], size: api.PictureSize
    ) -> Outcome:
        """All images, each scaled to at most `size`, or the error of the first one that cannot be
        decoded. When cancelled, or after an error, queued ones are dropped."""
        self.start()
        jobs = [_Job(encoded, size) for encoded in pictures]
        sizes = [is_small(encoded) for encoded in pictures]
        with self._changed:
            for job, small in zip(jobs, sizes, strict=True):
                self._queue.add(owner, job, small=small)
            self._changed.notify_all()
        decoded = []
        try:
            for job in jobs:
                answer = await asyncio.wrap_future(job.answer)
                if isinstance(answer, ProtocolError):
                    return answer
                decoded.append(answer)
        finally:
            with self._changed:
                for job in jobs[len(decoded) :]:
                    self._queue.discard(owner, job)
        return tuple(decoded)

    def _drive(self, lane: _Lane) -> None:
        while (taken := self._next(lane)) is not None:
            owner, job = taken
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result(self._decode(lane.decoder, job))
            with self._changed:
                self._queue.done(owner)
                self._changed.notify_all()

    def _next(self, lane: _Lane) -> tuple[Hashable, _Job] | None:
        """Wait for work. None: stop."""
        with self._changed:
            while not lane.stopping:
                taken = self._queue.take(only_small=lane.only_small)
                if taken is not None:
                    return taken
                self._changed.wait()
        return None

    @staticmethod
    def _decode(decoder: ProcessDecoder, job: _Job) -> Answer:
        try:
            return decoder.decode(job.encoded, job.size)
        except Exception:  # a fault of ours; other images are still decoded
            log.exception("a picture could not be decoded")
            return ProtocolError(
                "server_error",
                "The server cannot decode pictures at the moment.",
                param=job.encoded.param,
                type=SERVER_ERROR,
            )


DECODERS = Decoders()
