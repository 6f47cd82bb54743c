"""A record of what a session knows in each pause of a turn, for replaying endpoint policies.

A turn goes through the gateway's segmenter (VAD, pauses) under a policy that never ends it, and the
segments through a real engine. So each pause is recorded as a policy meets it: its length by the
VAD, the speech before it, and the language model's probability that the message is over, with the
time until it was known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headstart.benchmarks.in_process import Live
from headstart.benchmarks.pauses import RATE_HZ, SpokenTurn, room
from headstart.engine import api
from headstart.gateway.audio.clock import CLIENT_RATE_HZ, ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    ASK_AGAIN_MS,
    EndpointPolicy,
    EndpointVerdict,
    Pause,
)
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SpeechChunk,
    SpeechEvent,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
)

HUSH_MS = 200
PATIENCE_MS = 2500
"""Longer than any pause in `benchmarks.pauses`; such a silence is the end of the turn."""
PACKET_BYTES = 2 * CLIENT_RATE_HZ // 50
SPECULATE = api.Sampling(max_tokens=1)  # only the answer's beginning is needed


@dataclass
class Paused:
    """One pause of a turn that was long enough for a `Hush`.

    `silence_samples` None: the turn was over. `probability`: at the `Hush`; `again`: after
    `ASK_AGAIN_MS` of silence; None: not asked, for lack of words or because the pause was over.
    """

    speech_samples: int
    silence_samples: int | None = None
    probability: float | None = None
    again: float | None = None
    asked_ms: float = 0.0
    words: str = ""


@dataclass
class RecordedTurn:
    """A turn of `headstart.benchmarks.pauses` with its pauses in order."""

    speaker: int
    kind: str
    text: str
    pause_ms: float
    pauses: list[Paused]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> RecordedTurn:
        pauses = [Paused(**pause) for pause in record["pauses"]]
        return cls(**{**record, "pauses": pauses})


class _Notes(EndpointPolicy):
    """An endpoint policy that only records."""

    def __init__(self) -> None:
        self.pauses: list[Paused] = []

    @property
    def longest_silence_ms(self) -> int:
        return PATIENCE_MS

    def judge(self, pause: Pause) -> EndpointVerdict:
        if pause.silence_samples >= ms_to_engine_samples(PATIENCE_MS):
            return EndpointVerdict.END
        if pause.silence_samples < ms_to_engine_samples(HUSH_MS):
            return EndpointVerdict.WAIT
        if pause.silence_samples == ms_to_engine_samples(HUSH_MS):
            self.pauses.append(Paused(pause.speech_samples))
        if pause.silence_samples == ms_to_engine_samples(ASK_AGAIN_MS):
            return EndpointVerdict.RECHECK
        return EndpointVerdict.HUSH

    def continued_after(self, silence_samples: int) -> None:
        if silence_samples >= ms_to_engine_samples(HUSH_MS):
            self.pauses[-1].silence_samples = silence_samples


class Recorder:
    """One engine, with one session for each turn."""

    def __init__(self, model: str) -> None:
        self._live = Live(model)
        self._turns = 0

    def record(self, turn: SpokenTurn) -> RecordedTurn:
        """All pauses of one turn that lasted `HUSH_MS`."""
        self._turns += 1
        name = f"turn{self._turns}"
        self._live.open(name)
        notes = _Notes()
        for event in _events(SpeechSegmenter(Detection(endpoint=notes)), turn):
            self._tell(name, event, notes)
        self._live.close(name)
        return RecordedTurn(turn.speaker, turn.kind, turn.text, turn.pause_ms, notes.pauses)

    def _tell(self, name: str, event: SpeechEvent, notes: _Notes) -> None:
        tell = self._live.engine.receive
        match event:
            case SpeechStarted():
                tell(api.BeginSpeech(name, event.ref, f"u{event.ref.turn}", event.start_sample))
            case SpeechChunk():
                now_ns = time.monotonic_ns()
                tell(api.Audio(name, event.ref, event.start_sample, event.pcm, now_ns))
            case PauseDetected():
                self._ask(api.Hush(name, event.ref, event.end_sample, SPECULATE), notes.pauses[-1])
                return
            case SpeechResumed():
                tell(api.Resume(name, event.ref))
            case _:
                return
        self._live.run()

    def _ask(self, hush: api.Hush, paused: Paused) -> None:
        events = self._live.events
        events.clear()

        def told() -> bool:
            return any(isinstance(event, api.EndOfMessage) for event in events)

        is_first = not paused.asked_ms
        began_s = time.perf_counter()
        self._live.engine.receive(hush)
        self._live.run(told)
        if is_first:
            paused.asked_ms = round((time.perf_counter() - began_s) * 1000, 1)
        for event in events:
            match event:
                case api.EndOfMessage() if is_first:
                    paused.probability = event.probability
                case api.EndOfMessage():
                    paused.again = event.probability
                case api.Hearing():
                    paused.words = event.committed + event.tentative
        if paused.again is None and not is_first:
            paused.again = paused.probability  # the words are the same, so it is not asked again
        self._live.run()


def _events(listener: SpeechSegmenter, turn: SpokenTurn) -> Iterator[SpeechEvent]:
    """The events of a turn and the silence behind it, in packets of 20 ms, on time."""
    resampler = StreamResampler(RATE_HZ, CLIENT_RATE_HZ)
    whole = np.concatenate([turn.sound, room(PATIENCE_MS + 500.0)])
    pcm = resampler.feed(whole).tobytes()
    for start in range(0, len(pcm), PACKET_BYTES):
        packet = pcm[start : start + PACKET_BYTES]
        for event in listener.feed(packet, (start + len(packet)) // 2 * 10**9 // CLIENT_RATE_HZ):
            yield event
            if isinstance(event, SpeechStopped):
                return
