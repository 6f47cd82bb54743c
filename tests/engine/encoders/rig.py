"""Encoder processes for tests: a scripted one in a thread, and a real one of a model directory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from headstart.engine.encoders.messages import Picture
from headstart.engine.encoders.server import EncoderJob, EncoderServer
from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.vision.encoder_cache import EncoderCache

Rgb = npt.NDArray[np.uint8]
PATIENCE_S = 60.0
IDENTITY = "of the test"
HIDDEN = 4


def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.01)


def picture(look: int, height: int = 2, width: int = 3) -> Rgb:
    return np.full((height, width, 3), look, np.uint8)


class Gated:
    """Encodes a unit when it may; its first byte says what becomes of it."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.looks: list[int] = []

    def tokens(self, pictures: Sequence[Rgb], *, still: bool) -> int:
        return 10

    def encode(self, units: Sequence[Sequence[Rgb]], *, still: bool) -> list[list[Picture] | None]:
        looks = [int(pictures[0][0, 0, 0]) for pictures in units]
        self.looks += looks
        assert self.may.acquire(timeout=PATIENCE_S)
        if 201 in looks:
            raise ValueError("a fault of the test")
        if 202 in looks:
            raise SystemExit
        if still:
            return [None] * len(units)
        return [[Picture(torch.full((2, HIDDEN), float(look)), 1, 2)] for look in looks]


class Served:
    """A scripted encoder at an address of its own, served by a thread."""

    def __init__(
        self,
        endpoint: str,
        *,
        identity: str = IDENTITY,
        limit: int = 8,
        together: int = 1,
        cache_bytes: int = 1 << 20,
        keys: Path | None = None,
        hang_s: float = 300.0,
    ) -> None:
        self.encoder = Gated()
        self.server = EncoderServer(
            endpoint,
            self.encoder,
            identity,
            EncodeQueue[EncoderJob](1_000, BatchSize(together), limit),
            EncoderCache(cache_bytes, 60.0, time.monotonic_ns),
            keys=keys,
            hang_s=hang_s,
        )
        self.endpoint = self.server.endpoint
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def join(self) -> None:
        """Until it has ended by itself."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.encoder.may.release(1_000)
        self.server.stopping = True
        self._thread.join(PATIENCE_S)
        self.server.close()


@contextlib.contextmanager
def served(endpoint: str, **settings: object) -> Iterator[Served]:
    made = Served(endpoint, **settings)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


class EncoderProcess:
    """A real one, on one thread."""

    def __init__(self, endpoint: str, model: Path, *arguments: str) -> None:
        argv = [sys.executable, "-P", "-m", "headstart.engine", "--serve-encoder", endpoint]
        argv += ["--model", str(model), "--threads", "1", "--weights", "fp32", *arguments]
        self._argv = argv
        self.start()

    def start(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            self._argv, stderr=subprocess.PIPE, text=True, env=environment
        )

    def end(self) -> str:
        """Kill it; what it has said."""
        self.process.kill()
        return self.process.communicate()[1]


@contextlib.contextmanager
def encoder_process(endpoint: str, model: Path, *arguments: str) -> Iterator[EncoderProcess]:
    made = EncoderProcess(endpoint, model, *arguments)
    try:
        yield made
    finally:
        made.end()
