"""A record of what a session knows in each pause of a turn, for replaying endpoint policies.

A turn goes through the gateway's segmenter (VAD, pauses) under a policy that never ends it, and the
segments through a real engine. So each pause is recorded as a policy meets it: its length by the
VAD, the speech before it, the words, and the language model's probability that the message is over,
asked after `ASKED_MS` of silence, and again after `ASKED_AGAIN_MS` unless the message was whole
(`WHOLE_FROM`), with the time that took. Smart-turn is asked at `SMART_TURN_AT_MS`, as Pipecat does.

Sound is heard in chunks of `CHUNK_MS`, to save time: the final pass of each pause reads the whole
turn anyway.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import INSTRUCTIONS, Live
from headstart.benchmarks.inputs.voices import Say, cast
from headstart.benchmarks.turns import people
from headstart.benchmarks.turns.people import Planned, Turn
from headstart.benchmarks.turns.smart_turn import PRE_SPEECH_MS, SmartTurn
from headstart.engine import api
from headstart.gateway.audio.clock import (
    CLIENT_RATE_HZ,
    ENGINE_RATE_HZ,
    engine_samples_to_ms,
    ms_to_engine_samples,
)
from headstart.gateway.audio.endpointing import EndpointPolicy, EndpointVerdict, Pause
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SegmenterSettings,
    SpeechChunk,
    SpeechEvent,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
)

ASKED_MS, ASKED_AGAIN_MS = 120, 600
WHOLE_FROM = 0.5
CHUNK_MS = 2000
SMART_TURN_AT_MS = 200
NOTED_FROM_MS = 100
PATIENCE_MS = 2600
"""Longer than any pause within a turn; such a silence is the end of the turn."""
PACKET_BYTES = 2 * CLIENT_RATE_HZ // 50
SPECULATE = api.Sampling(max_tokens=1)  # only the answer's beginning is needed


@dataclass
class Asked:
    """The model's word in a pause. `took_ms`: the processor time on one thread, halved, which is
    about what two idle cores need. `probability` None: there were no words. `likely`: of each word,
    the recogniser's probability; `marked`: the model's of a mark behind the last one."""

    at_ms: int
    probability: float | None
    words: str
    took_ms: float
    likely: tuple[float, ...] = ()
    marked: float | None = None


@dataclass
class Paused:
    """One pause of a turn of `NOTED_FROM_MS` or more, in 16 kHz samples.

    `start_sample`: where speech ended, by the VAD; `silence_samples` None: it did not go on.
    """

    start_sample: int
    speech_samples: int
    silence_samples: int | None = None
    asked: list[Asked] = field(default_factory=list)
    smart_turn: float | None = None


@dataclass
class RecordedTurn:
    """A turn of `people` with its pauses in order; `end_sample`: behind the
    person's last sound, at 16 kHz."""

    key: str
    half: str
    voice: str
    kind: str
    text: str
    asked: str
    noise: str
    pauses_ms: tuple[float, ...]
    end_sample: int
    pauses: list[Paused]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> RecordedTurn:
        pauses = [
            Paused(**{**pause, "asked": [_asked_of(one) for one in pause["asked"]]})
            for pause in record["pauses"]
        ]
        return cls(**{**record, "pauses": pauses, "pauses_ms": tuple(record["pauses_ms"])})


def _asked_of(record: dict[str, Any]) -> Asked:
    return Asked(**{**record, "likely": tuple(record.get("likely", ()))})


class _Notes(EndpointPolicy):
    """An endpoint policy that only records."""

    def __init__(self) -> None:
        self.pauses: list[Paused] = []
        self.silence_samples = 0

    @property
    def longest_silence_ms(self) -> int:
        return PATIENCE_MS

    def judge(self, pause: Pause) -> EndpointVerdict:
        self.silence_samples = pause.silence_samples
        silence_ms = engine_samples_to_ms(pause.silence_samples)
        if silence_ms == NOTED_FROM_MS:
            self.pauses.append(Paused(0, pause.speech_samples))
        if silence_ms >= PATIENCE_MS:
            return EndpointVerdict.END
        if silence_ms < ASKED_MS:
            return EndpointVerdict.WAIT
        asked = self.pauses[-1].asked
        is_open = not asked or (asked[-1].probability or 0.0) < WHOLE_FROM
        again = silence_ms == ASKED_AGAIN_MS and is_open
        return EndpointVerdict.RECHECK if again else EndpointVerdict.HUSH

    def continued_after(self, silence_samples: int) -> None:
        if silence_samples >= ms_to_engine_samples(NOTED_FROM_MS):
            self.pauses[-1].silence_samples = silence_samples


class Recorder:
    """One engine, with one session for each turn."""

    def __init__(self, model: str) -> None:
        self._live = Live(model, threads=1)  # two wait for each other on a busy machine
        self._smart_turn = SmartTurn()
        self._turns = 0

    def record(self, turn: Turn) -> RecordedTurn:
        """All pauses of one turn."""
        self._turns += 1
        name, plan = f"turn{self._turns}", turn.plan
        self._live.engine.receive(api.Open(name, INSTRUCTIONS))
        if plan.script.asked:
            said = api.Item("a0", api.Role.ASSISTANT, (api.Text(plan.script.asked),))
            self._live.engine.receive(api.AddItem(name, said))
        self._live.run()
        notes = _Notes()
        sound = StreamResampler(CLIENT_RATE_HZ, ENGINE_RATE_HZ).feed(turn.pcm)
        heard = _Heard(sound, self._smart_turn)
        for event, now_sample in _events(turn, notes):
            self._tell(name, event, notes, now_sample)
            heard.note(event, notes, now_sample)
        self._live.close(name)
        return RecordedTurn(
            plan.key,
            plan.half,
            plan.voice,
            plan.script.kind,
            plan.script.text,
            plan.script.asked,
            turn.noise,
            plan.pauses_ms,
            turn.end * ENGINE_RATE_HZ // CLIENT_RATE_HZ,
            notes.pauses,
        )

    def _tell(self, name: str, event: SpeechEvent | None, notes: _Notes, now_sample: int) -> None:
        tell = self._live.engine.receive
        match event:
            case SpeechStarted():
                tell(api.BeginSpeech(name, event.ref, f"u{event.ref.turn}", event.start_sample))
            case SpeechChunk():
                now_ns = time.monotonic_ns()
                tell(api.Audio(name, event.ref, event.start_sample, event.pcm, now_ns))
            case PauseDetected():
                self._ask(api.Hush(name, event.ref, event.end_sample, SPECULATE), notes)
                return
            case SpeechResumed():
                tell(api.Resume(name, event.ref))
            case _:
                return
        self._live.run()

    def _ask(self, hush: api.Hush, notes: _Notes) -> None:
        events = self._live.events
        events.clear()

        def told() -> bool:
            return any(isinstance(event, api.EndOfMessage) for event in events)

        began_s = time.process_time()
        self._live.engine.receive(hush)
        self._live.run(told)
        took_ms = round((time.process_time() - began_s) * 1000 / 2, 1)
        paused = notes.pauses[-1]
        at_ms = engine_samples_to_ms(notes.silence_samples)
        last = paused.asked[-1] if paused.asked else Asked(0, None, "", 0.0)
        probability, words = last.probability, last.words  # not asked again about the same words
        likely, marked = last.likely, last.marked
        for event in events:
            match event:
                case api.EndOfMessage():
                    probability, marked = event.probability, event.mark_probability
                case api.Hearing():
                    words = event.committed + event.tentative
                    likely = tuple(round(one, 4) for one in event.likely)
        paused.asked.append(Asked(at_ms, probability, words, took_ms, likely, marked))
        self._live.run()


class _Heard:
    """Fills in what the sound alone tells: where pauses begin, and smart-turn's word."""

    def __init__(self, sound: npt.NDArray[np.int16], smart_turn: SmartTurn) -> None:
        self._sound, self._smart_turn = sound, smart_turn
        self._begin = 0

    def note(self, event: SpeechEvent | None, notes: _Notes, now_sample: int) -> None:
        if isinstance(event, SpeechStarted):
            before = ms_to_engine_samples(PRE_SPEECH_MS)
            self._begin = max(0, event.speech_sample - before)
        if event is not None or not notes.pauses:
            return
        paused, silence = notes.pauses[-1], notes.silence_samples
        if silence and not paused.start_sample:
            paused.start_sample = now_sample - silence
        asks = silence == ms_to_engine_samples(SMART_TURN_AT_MS)
        if asks and paused.smart_turn is None:
            heard = self._sound[self._begin : now_sample]
            paused.smart_turn = round(self._smart_turn.probability(heard), 4)


def _events(turn: Turn, notes: _Notes) -> Iterator[tuple[SpeechEvent | None, int]]:
    """The events of a turn in packets of 20 ms, each with the clock in 16 kHz samples; None behind
    each packet's. It is over after `PATIENCE_MS`, or with its sound."""
    listener = SpeechSegmenter(Detection(endpoint=notes), SegmenterSettings(chunk_ms=CHUNK_MS))
    pcm = turn.pcm.tobytes()
    for start in range(0, len(pcm), PACKET_BYTES):
        packet = pcm[start : start + PACKET_BYTES]
        for event in listener.feed(packet, (start + len(packet)) // 2 * 10**9 // CLIENT_RATE_HZ):
            yield event, listener.clock_samples
            if isinstance(event, SpeechStopped):
                return
        # The VAD judges whole windows of what has come.
        yield None, listener.clock_samples // 320 * 320


def recorded(plans: Sequence[Planned], cache: Path | None, model: str) -> list[RecordedTurn]:
    """The record of each plan, in their order; without those of recordings that have no sound or
    last too long. `cache` (JSON lines) is read first and grows by each turn that it lacks, so that
    a run that was broken off goes on where it stopped.

    Raises `headstart.gateway.tts.synthesiser.VoiceUnavailable`.
    """
    known = _read(cache) if cache is not None and cache.exists() else {}
    # In an order of chance, so that a part of them resembles the whole.
    missing = sorted(
        (plan for plan in plans if plan.key not in known),
        key=lambda plan: zlib.crc32(plan.key.encode()),
    )
    recorder: Recorder | None = None
    voices: dict[str, Say] = {}
    for number, plan in enumerate(missing, 1):
        recorder = recorder or Recorder(model)
        turn = _turn_of(plan, voices)
        known[plan.key] = recorder.record(turn) if turn is not None else None
        if cache is not None:
            found = known[plan.key]
            line = {"key": plan.key, "turn": found.to_json() if found is not None else None}
            with cache.open("a") as lines:
                lines.write(json.dumps(line) + "\n")
        report.say(f"{number}/{len(missing)} {plan.key}")
    found_turns = (known.get(plan.key) for plan in plans)
    return [turn for turn in found_turns if turn is not None]


def _turn_of(plan: Planned, voices: dict[str, Say]) -> Turn | None:
    if plan.path is not None:
        return people.load(plan)
    if plan.voice not in voices:
        voices.update(cast((plan.voice,)))
    return people.speak(plan, voices[plan.voice]) if plan.voice in voices else None


def _read(cache: Path) -> dict[str, RecordedTurn | None]:
    lines = [json.loads(line) for line in cache.read_text().splitlines()]
    return {
        line["key"]: RecordedTurn.of_json(line["turn"]) if line["turn"] is not None else None
        for line in lines
    }
