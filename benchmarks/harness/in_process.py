"""A live session in this process: an engine with real weights, fed with audio and timed."""

from __future__ import annotations

import dataclasses
import select
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.process.assemble import ModelPaths, assemble
from headstart.engine.weights import resolve_model

Samples = npt.NDArray[np.int16]
CHUNK_SAMPLES = 8_000  # half a second
READING_POLL_S = 0.2  # an answer waits for a reading no longer than its limit
INSTRUCTIONS = "You are a friendly assistant. Answer in one or two short sentences."
SAMPLING = api.Sampling(max_tokens=16)


def clip(name: str) -> Samples:
    """A bundled clip, s16 mono 16 kHz."""
    return load_s16(CLIPS / name, api.SAMPLE_RATE_HZ)


def speech_of(seconds: float) -> Samples:
    """About `seconds` of unbroken speech that ends in a question: the bundled monologue repeated,
    then "What is the capital of France?"."""
    question = clip("capital.wav")
    monologue = clip("monologue.ogg")
    missing = round(seconds * api.SAMPLE_RATE_HZ) - len(question)
    if missing <= 0:
        return question
    repeats = -(-missing // len(monologue))
    return np.concatenate([np.tile(monologue, repeats)[:missing], question])


def paths_of(model: str) -> ModelPaths:
    """The files of a model, fetched if necessary."""
    return ModelPaths.of(resolve_model(model))


class Live:
    """One engine and its events, all in the calling thread."""

    def __init__(
        self,
        model: str,
        threads: int | None = None,
        kv_dtype: str = "fp32",
        reading: str = "auto",
        kv_text_kept: float = 1.0,
    ) -> None:
        self.events: list[api.Event] = []
        config = EngineConfig(
            model=model, kv_dtype=kv_dtype, reading=reading, kv_text_kept=kv_text_kept
        )
        if threads is not None:
            config = dataclasses.replace(config, threads=threads)
        self.paths = paths_of(model)
        engine, self.info = assemble(self.paths, config, self.events.append, lambda *_: None)
        self.engine: Engine = engine
        self._generation = 0

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Step until there is nothing to do, or `until` is true."""
        while not (until is not None and until()):
            if self.engine.step():
                continue
            if not self.engine.awaits_reading:
                return
            select.select(self.engine.wake_fds, [], [], READING_POLL_S)

    def read(self) -> None:
        """Wait until all pictures are read, and run on."""
        self.run()
        while self.engine.is_reading:
            select.select(self.engine.wake_fds, [], [], READING_POLL_S)
            self.run()

    def open(self, name: str) -> None:
        self.engine.receive(api.Open(name, INSTRUCTIONS))
        self.run()

    def close(self, name: str) -> None:
        self.engine.receive(api.Close(name))

    def hear(self, name: str, sound: Samples, chunk_samples: int = CHUNK_SAMPLES) -> None:
        """Send a whole utterance without its final pause, completing each chunk before the next."""
        ref = api.TurnRef(1)
        self.engine.receive(api.BeginSpeech(name, ref, "u1", 0))
        for start in range(0, len(sound), chunk_samples):
            pcm = sound[start : start + chunk_samples].tobytes()
            self.engine.receive(api.Audio(name, ref, start, pcm, time.monotonic_ns()))
            self.run()

    def hush(self, name: str) -> float:
        """Send the short silence; returns seconds until the speculated answer is ready."""
        began_s = time.perf_counter()
        self.engine.receive(api.Hush(name, api.TurnRef(1), 0, SAMPLING))
        self.run()
        return time.perf_counter() - began_s

    def hush_again(self, name: str, revision: int) -> None:
        """Resume speech for an instant and pause again, so that speculation starts over."""
        self.engine.receive(api.Resume(name, api.TurnRef(1, revision)))
        self.engine.receive(api.Hush(name, api.TurnRef(1, revision), 0, SAMPLING))
        self.run()

    def suffix(self, name: str, revision: int) -> float:
        """Seconds of the work left at the endpoint without speculation: the turn's suffix and the
        first token, on the K/V of all speech."""
        self.engine.receive(api.Resume(name, api.TurnRef(1, revision)))
        self.run()
        session = self.engine.sessions[name]
        began_s = time.perf_counter()
        self.engine.receive(api.Hush(name, api.TurnRef(1, revision), 0, SAMPLING))
        self.run(lambda: session.answer is not None and session.answer.first_text_ns is not None)
        took_s = time.perf_counter() - began_s
        self.run()
        return took_s

    def first_token(self, name: str, *commands: api.Command) -> float:
        """Seconds from the endpoint (`commands` and a request to answer) to the first text."""
        self._generation += 1
        generation = self._generation
        began_ns = time.monotonic_ns()
        seen = len(self.events)
        for command in commands:
            self.engine.receive(command)
        self.engine.receive(api.Respond(name, generation, f"a{generation}", SAMPLING))

        def answered() -> bool:
            return any(isinstance(e, api.Delta | api.Finished) for e in self.events[seen:])

        self.run(answered)
        ended_ns = time.monotonic_ns()
        # A live engine sends a delta at once; the step that made it may continue to decode.
        deltas = [e.at_ns for e in self.events[seen:] if isinstance(e, api.Delta)]
        self.run()
        return ((deltas[0] if deltas else ended_ns) - began_ns) / 1e9

    def transcript(self) -> str:
        """The words of the newest utterance."""
        heard = [e for e in self.events if isinstance(e, api.Heard)]
        return heard[-1].text if heard else ""

    def answer(self) -> str:
        finished = [e for e in self.events if isinstance(e, api.Finished)]
        return finished[-1].text if finished else ""
