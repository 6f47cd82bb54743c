"""What is made of sound over an answer: who interrupts it, who doesn't, and how soon that is known.

A spoken answer plays; a session core of the gateway and a real engine, in this process, hear a
sound over it: interruptions and signs of listening, spoken by the packaged voice, and noises
(`benchmarks.noise`). Time is the sound's own, and the engine's work is added to it.

Keys: interruptions, listening, noises; each has `sounds`, `interrupted` (how many ended it),
`which` (those that went the wrong way), `held_ms` (median from the first sound noticed until it was
known; of what did not interrupt, how long the answer's sound stood still).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import noise, report
from benchmarks.in_process import Live
from engine.weights import ensure
from gateway import config
from gateway.actions import Action, HoldPlayout, Send, Tell
from gateway.metrics import Metrics
from gateway.open_utterance import Arrival
from gateway.protocol.ids import IdMaker
from gateway.session import Session
from gateway.voice import synthesiser
from gateway.voice.messages import Said, Sound

Samples = npt.NDArray[np.int16]

INTERRUPTIONS = (
    "Stop.",
    "Wait.",
    "No, that's wrong.",
    "Can you repeat that?",
    "What about Italy?",
    "Please stop talking.",
    "Hold on a second.",
    "That is not what I asked.",
    "Thank you, that's enough.",
    "Tell me something else.",
)
LISTENING = ("Mm-hmm.", "Uh-huh.", "Okay.", "Yeah.", "Right.", "I see.", "Oh, wow.", "Sure.")
NOISES = ("coughs", "keyboard", "breath", "white noise")
NOISE_S = 3.0
PACKET_SAMPLES = synthesiser.RATE_HZ // 50
ANSWER_S = 20
NS_PER_S = 10**9


@dataclass
class _Outcome:
    name: str
    interrupted: bool = False
    held_ms: float = 0.0


@dataclass
class _Overlap:
    """One session in the middle of a spoken answer; `ahead_ns`: what the engine's work took."""

    live: Live
    outcome: _Outcome
    now_ns: int = 0
    held_since_ns: int | None = None
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = Session(
            self.outcome.name,
            config.load(),
            IdMaker.counting(),
            Metrics(),
            engine_ready=True,
            model_name="small",
            now_ns=0,
            wall_s=0.0,
            stopwatch=lambda: 0,
            speaks=True,
        )
        self._take(self.session.start(0))
        self._take(self.session.receive_text('{"type": "response.create"}', 0))
        self._engine()
        whole = Sound(self.outcome.name, 1, 0, bytes(2 * ANSWER_S * synthesiser.RATE_HZ))
        self._take(self.session.receive_voice(whole, self.now_ns))
        self._take(self.session.receive_voice(Said(self.outcome.name, 1, 0), self.now_ns))

    def hear(self, sound: Samples) -> None:
        """The sound, in packets on time, and two seconds of silence behind it."""
        whole = np.concatenate([sound, np.zeros(2 * synthesiser.RATE_HZ, np.int16)])
        for start in range(0, len(whole), PACKET_SAMPLES):
            packet = whole[start : start + PACKET_SAMPLES].tobytes()
            self.now_ns += NS_PER_S // 50
            self._take(self.session.receive_audio(packet, Arrival(self.now_ns, None), self.now_ns))
            self._engine()
            self._take(self.session.tick(self.now_ns))

    def _engine(self) -> None:
        """Let the engine work; what it says arrives when it has."""
        self.live.events.clear()
        began_ns = time.perf_counter_ns()
        self.live.run()
        known_ns = self.now_ns + time.perf_counter_ns() - began_ns
        for event in list(self.live.events):
            self._take(self.session.receive_engine(event, known_ns), known_ns)

    def _take(self, actions: Sequence[Action], at_ns: int | None = None) -> None:
        at_ns = self.now_ns if at_ns is None else at_ns
        for action in actions:
            match action:
                case Tell():
                    self.live.engine.receive(action.command)
                case HoldPlayout(held=True):
                    self.held_since_ns = at_ns
                case HoldPlayout() if self.held_since_ns is not None:
                    self.outcome.held_ms += (at_ns - self.held_since_ns) / 1e6
                    self.held_since_ns = None
                case Send() if action.event["type"] == "input_audio_buffer.speech_started":
                    self.outcome.interrupted = True
                case _:
                    pass


def run(model: str, *, as_json: bool) -> None:
    """Measure and report. Raises `VoiceUnavailable`."""
    live = Live(model)
    voice = synthesiser.load("joe", ensure("joe"))
    result: dict[str, Any] = {"model": model}
    for kind, texts in (("interruptions", INTERRUPTIONS), ("listening", LISTENING)):
        sounds = {text: np.concatenate(list(voice.speak(text, 1.0))) for text in texts}
        result[kind] = _judged(live, sounds, wanted=kind == "interruptions")
    noises = {kind: noise.make(kind, NOISE_S) for kind in NOISES}
    result["noises"] = _judged(live, noises, wanted=False)
    report.finish("overlap", result, as_json=as_json)


def _judged(live: Live, sounds: dict[str, Samples], *, wanted: bool) -> dict[str, Any]:
    outcomes = []
    for name, sound in sounds.items():
        overlap = _Overlap(live, _Outcome(name))
        overlap.hear(sound)
        live.close(name)
        outcomes.append(overlap.outcome)
        report.say(f"{overlap.outcome}")
    held_ms = [outcome.held_ms for outcome in outcomes if outcome.held_ms]
    return {
        "sounds": len(outcomes),
        "interrupted": sum(outcome.interrupted for outcome in outcomes),
        "which": [outcome.name for outcome in outcomes if outcome.interrupted is not wanted],
        "held_ms": round(statistics.median(held_ms), 1) if held_ms else None,
    }
