"""Clients' pictures, decoded in other processes, each session in its turn.

    run(owner, pictures) ─▶ FairQueue ─▶ a thread each ─▶ decode_worker: any picture
                                                      └─▶ decode_worker: small ones only

One picture of a session is decoded at a time. What is small (`is_small`: a camera's frame, a
screenshot) waits for other small ones at most, as one process takes nothing else. A picture that is
not there after `LIMIT_S` gets its process killed, and a new one is started; so does one that breaks
the decoder. In both cases, and where it takes more than `MEMORY_MIB`, the client gets an error.

Bound: a session has one event's pictures (`limits.MAX_EVENT_PICTURES`) and one frame of its camera
under way; the runner reads no further event before an item's pictures are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import SERVER_ERROR, ProtocolError
from headstart.gateway.runtime.child_process import describe_exit
from headstart.gateway.runtime.fair_queue import FairQueue
from headstart.gateway.video.decode import Encoded, Outcome, Seen, is_small
from headstart.gateway.video.decode_worker import (
    Gone,
    Reply,
    Request,
    read_exactly,
    read_message,
    send_message,
    to_seen,
)

log = logging.getLogger("headstart.pictures")

LIMIT_S = 20.0
"""For one picture; the dearest that are allowed take two or three on an idle core, and go after all
that is said (`decode_worker.NICENESS`)."""
MEMORY_MIB = 768
"""Of a process, beyond its own 50: 40 million pixels of 16 bits and their conversion take 600."""
SEND_CHARS = 1 << 20
LANES = (False, True)
"""Whether a decoder takes small pictures only."""

Answer = Seen | ProtocolError


class Decoder(Protocol):
    """One that decodes; used from one thread, but for `kill`."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def decode(self, encoded: Encoded, size: api.PictureSize) -> Answer: ...
    def stop(self) -> object: ...


class ProcessDecoder:
    """A process, started anew after each that ended."""

    def __init__(self, limit_s: float = LIMIT_S, memory_mib: int = MEMORY_MIB) -> None:
        self.pid: int | None = None
        self._limit_s, self._memory_mib = limit_s, memory_mib
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """If it does not run. Raises OSError."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "headstart.gateway.video.decode_worker",
                    str(self._memory_mib),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                # Its threads' stacks would count as memory, and it needs none.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C at a terminal is the gateway's
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket, self.pid = ours, self._process.pid

    def decode(self, encoded: Encoded, size: api.PictureSize) -> Answer:
        """The picture, or what is wrong with it. Raises OSError if no process can be started."""
        self.start()
        assert self._socket is not None
        try:
            return self._exchange(_Timed(self._socket, self._limit_s), encoded, size)
        except TimeoutError:
            problem = f"Expected a picture that is decoded within {self._limit_s:g} s."
        except (Gone, ConnectionError):
            problem = "It breaks the decoder."
        ended = self.stop()
        log.warning("a picture's decoder was lost (%s): %s", describe_exit(ended), problem)
        return errors.invalid_image(encoded.param, problem)

    def _exchange(self, timed: _Timed, encoded: Encoded, size: api.PictureSize) -> Answer:
        text = encoded.text
        request = Request(
            len(text), encoded.param, encoded.bare_base64, size.short_side, size.pixels
        )
        send_message(timed, request)
        for at in range(0, len(text), SEND_CHARS):  # the interpreter is never held for long
            timed.sendall(text[at : at + SEND_CHARS].encode("ascii", "replace"))
        reply = read_message(timed, Reply)
        if reply.error is not None:
            code, message = reply.error
            return ProtocolError(code, message, param=encoded.param)
        return to_seen(reply, bytes(read_exactly(timed, reply.rgb_bytes)))

    def kill(self) -> None:
        """From any thread: whoever waits for a picture waits no longer."""
        process = self._process
        if process is not None:
            process.kill()  # of one that has ended, nothing

    def stop(self) -> int:
        """Kill it. Returns how it ended."""
        process, connection = self._process, self._socket
        self._process = self._socket = self.pid = None
        if connection is not None:
            connection.close()
        if process is None:
            return 0
        process.kill()
        return process.wait()


class _Timed:
    """A socket for so many seconds; then it raises TimeoutError."""

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


class Decoders:
    """One decoder for any picture and one for small ones, each with a thread that waits for it.
    `start` before the first picture, or the first one does."""

    def __init__(self, make: Callable[[], Decoder] = ProcessDecoder) -> None:
        self._make = make
        self._queue: FairQueue[Hashable, _Job] = FairQueue()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._decoders: list[Decoder] = []
        self._stopping = False

    def start(self) -> None:
        """The threads, which start the processes; returns at once."""
        with self._changed:
            if self._threads:
                return
            self._stopping = False
            self._decoders = [self._make() for _ in LANES]
            self._threads = [
                threading.Thread(target=self._drive, args=work, name="decoder", daemon=True)
                for work in zip(self._decoders, LANES, strict=True)
            ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the processes and the threads. What waits, or is under way, is not decoded."""
        with self._changed:
            self._stopping = True
            threads, self._threads = self._threads, []
            decoders, self._decoders = self._decoders, []
            self._changed.notify_all()
        for decoder in decoders:
            decoder.kill()
        for thread in threads:
            thread.join()

    async def run(
        self, owner: Hashable, pictures: Sequence[Encoded], size: api.PictureSize
    ) -> Outcome:
        """All pictures, none larger than `size`, or what is wrong with the first that cannot be
        decoded. Cancelled, or after an error, those that still wait are forgotten."""
        self.start()
        jobs = [_Job(encoded, size) for encoded in pictures]
        sizes = [is_small(encoded) for encoded in pictures]
        with self._changed:
            for job, small in zip(jobs, sizes, strict=True):
                self._queue.add(owner, job, small=small)
            self._changed.notify_all()
        seen = []
        try:
            for job in jobs:
                answer = await asyncio.wrap_future(job.answer)
                if isinstance(answer, ProtocolError):
                    return answer
                seen.append(answer)
        finally:
            with self._changed:
                for job in jobs[len(seen) :]:
                    self._queue.discard(owner, job)
        return tuple(seen)

    def _drive(self, decoder: Decoder, only_small: bool) -> None:
        with contextlib.suppress(OSError):  # the first picture tries again, and says so
            decoder.start()
        while (taken := self._next(only_small)) is not None:
            owner, job = taken
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result(self._decode(decoder, job))
            with self._changed:
                self._queue.done(owner)
                self._changed.notify_all()
        decoder.stop()

    def _next(self, only_small: bool) -> tuple[Hashable, _Job] | None:
        """Wait for work. None: stop."""
        with self._changed:
            while not self._stopping:
                taken = self._queue.take(only_small=only_small)
                if taken is not None:
                    return taken
                self._changed.wait()
        return None

    @staticmethod
    def _decode(decoder: Decoder, job: _Job) -> Answer:
        try:
            return decoder.decode(job.encoded, job.size)
        except Exception:  # ours to mend; the others' pictures go on
            log.exception("a picture could not be decoded")
            return ProtocolError(
                "server_error",
                "The server cannot decode pictures at the moment.",
                param=job.encoded.param,
                type=SERVER_ERROR,
            )


DECODERS = Decoders()
