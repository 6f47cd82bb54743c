"""Sound over an answer: what interrupts it, what does not, and how soon that is decided.

While a spoken answer plays, a session of the gateway and a real engine, in this process, receive a
sound: real interruptions, backchannels, noises, and with LIST short recordings of a person
(`overlap_sounds`). The whole path takes part, chunk by chunk: segmenter, recogniser,
rule. Time is the sound's own, plus the processor time of the engine's threads: other processes on
the machine do not count.

`--going-on` judges by `GOING_ON`, the rule for speech right after an endpoint that can be taken
back: its "interruptions" take an answer back.

The rule was tuned on the sounds of `--half development`; the other half, with other voices, tells
what it is worth. `--notes FILE` appends a JSON line per sound. `--words` judges the final words
only, with `interrupted_plain` for the rule without word probabilities.

Keys: half, rule; `stop_ms_p50`, `stop_ms_p90`: of `interruptions`, from the first loud sample to
silence, where the server plays (a call: its playout stands still from the first detection on, and
is not heard again); `pausing_stop_ms_p50`: the same of a client that plays by itself and stands
still at `gateway.interruption`, as our page does, with `CLIENT_MS` for the way to its loudspeaker;
`announced_ms_p50`: until a stock client, which plays on until then, is told;
`listening_stopped_share`; `coughs`: coughs that ended the answer. Then `interruptions`, `mixed`,
`listening`, `noises`, `recordings`; each has `sounds`, `interrupted` (how many ended the answer),
`which` (those decided wrongly), `held_ms` (median time for which the answer's sound stood still
for nothing), `stop_ms_p50`, `announced_ms_p50`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.inputs.recordings import read_list
from headstart.benchmarks.turns import overlap_sounds, overlap_words
from headstart.engine import api
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.weights import ensure
from headstart.gateway import config
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.session.actions import (
    Action,
    ClearPlayout,
    HoldPlayout,
    Send,
    SendToEngine,
)
from headstart.gateway.session.barge_in import GOING_ON
from headstart.gateway.session.session import Session
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.tts import synthesiser
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio

Samples = npt.NDArray[np.int16]

WANTS_INTERRUPTIONS = json.dumps(
    {
        "type": "session.update",
        "session": {"type": "realtime", "gateway": {"events": ["interruption"]}},
    }
)
WANTED = ("interruptions", "mixed", "recordings")
PACKET_SAMPLES = synthesiser.RATE_HZ // 50
FRAME_MS = 20  # what the playout has handed over when it is told to stand still
ANSWER_S = 20
NS_PER_S = 10**9
CLIENT_MS = 40
"""From the server's event to silence in a client: `python -m tests.web_demo.standing_still`
measures it in Chromium."""
LOUD_DB = 25.0  # below the loudest window: there the sound has begun


@dataclass
class Outcome:
    """Of one sound. `holds`: how often the playout was told to stand still; times in ms from the
    first loud sample, None where nothing was stopped."""

    name: str
    interrupted: bool = False
    holds: int = 0
    held_ms: float = 0.0
    stop_ms: float | None = None
    pausing_ms: float | None = None
    announced_ms: float | None = None
    words: str = ""
    likely: tuple[float, ...] = ()


@dataclass
class Overlap:
    """One session in the middle of a spoken answer. `answer`: what it sounds like, silence unless
    it is given."""

    live: Live
    outcome: Outcome
    answer: Samples | None = None
    going_on: bool = False
    now_ns: int = 0
    held_since_ns: int | None = None
    stood_still_ns: tuple[int, int] | None = None  # the newest pause of the playout
    told_possible_ns: int | None = None  # since when a client that obeys stands still
    onset_ns: int = 0
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
        if self.going_on:
            self.session._turns._rule = GOING_ON
        self._take(self.session.start(0))
        self._take(self.session.receive_text(WANTS_INTERRUPTIONS, 0))
        self._take(self.session.receive_text('{"type": "response.create"}', 0))
        self._engine()
        silence = np.zeros(ANSWER_S * synthesiser.RATE_HZ, np.int16)
        sound = (silence if self.answer is None else self.answer).tobytes()
        whole = SynthesisedAudio(self.outcome.name, 1, 0, sound)
        self._take(self.session.receive_voice(whole, self.now_ns))
        self._take(self.session.receive_voice(ClauseDone(self.outcome.name, 1, 0), self.now_ns))

    def hear(self, sound: Samples) -> None:
        """Send the sound, in packets on time, and two seconds of silence behind it; no more once
        it has interrupted."""
        self.onset_ns = self.now_ns + onset_samples(sound) * NS_PER_S // synthesiser.RATE_HZ
        whole = np.concatenate([sound, np.zeros(2 * synthesiser.RATE_HZ, np.int16)])
        for start in range(0, len(whole), PACKET_SAMPLES):
            if self.outcome.interrupted:
                return
            packet = whole[start : start + PACKET_SAMPLES].tobytes()
            self.now_ns += NS_PER_S // 50
            self._take(self.session.receive_audio(packet, Arrival(self.now_ns, None), self.now_ns))
            self._engine()
            self._take(self.session.tick(self.now_ns))

    def end(self) -> None:
        """Close the session."""
        if not self.outcome.interrupted and self.stood_still_ns is not None:
            since_ns, until_ns = self.stood_still_ns
            self.outcome.held_ms = (until_ns - since_ns) / 1e6
        self.live.close(self.outcome.name)

    def _engine(self) -> None:
        """Let the engine work; its events arrive after its computing time."""
        self.live.events.clear()
        began_ns = time.process_time_ns()
        self.live.run()
        known_ns = self.now_ns + time.process_time_ns() - began_ns
        for event in list(self.live.events):
            if isinstance(event, api.Hearing):
                self.outcome.words = event.committed + event.tentative
                self.outcome.likely = tuple(round(p, 3) for p in event.likely)
            self._take(self.session.receive_engine(event, known_ns), known_ns)

    def _take(self, actions: Sequence[Action], at_ns: int | None = None) -> None:
        at_ns = self.now_ns if at_ns is None else at_ns
        for action in actions:
            match action:
                case SendToEngine():
                    self.live.engine.receive(action.command)
                case Send(event={"type": "gateway.interruption", "state": "possible"}):
                    self.told_possible_ns = at_ns
                case Send(event={"type": "gateway.interruption", "state": "false"}):
                    self.told_possible_ns = None
                case HoldPlayout(held=True) if not self.outcome.interrupted:
                    self.held_since_ns = at_ns
                    self.outcome.holds += 1
                case HoldPlayout() if self.held_since_ns is not None:
                    self.stood_still_ns = self.held_since_ns, at_ns
                    self.held_since_ns = None
                case ClearPlayout() if not self.outcome.interrupted:
                    self.outcome.interrupted = True
                    since_ns, until_ns = self.stood_still_ns or (at_ns, at_ns)
                    silent_ns = since_ns if until_ns == at_ns else at_ns  # else it went on
                    self.outcome.announced_ms = (at_ns - self.onset_ns) / 1e6
                    told_ns = at_ns if self.told_possible_ns is None else self.told_possible_ns
                    self.outcome.pausing_ms = (told_ns - self.onset_ns) / 1e6 + CLIENT_MS
                    self.outcome.stop_ms = (silent_ns - self.onset_ns) / 1e6 + FRAME_MS
                case _:
                    pass


def run(
    model: str,
    half: str,
    recordings: Path | None,
    notes: Path | None,
    *,
    going_on: bool,
    as_json: bool,
) -> None:
    """Measure and report. Raises `VoiceUnavailable`, and ValueError for a wrong LIST."""
    lines = read_list(recordings) if recordings is not None else ()
    live = Live(model)
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for heard in overlap_sounds.sounds(half, lines):
        overlap = Overlap(live, Outcome(heard.name), going_on=going_on)
        overlap.hear(heard.sound)
        overlap.end()
        outcomes[heard.kind].append(overlap.outcome)
        report.say(f"{heard.kind} {overlap.outcome}")
        if notes is not None:
            with notes.open("a") as file:
                file.write(json.dumps({"kind": heard.kind} | asdict(overlap.outcome)) + "\n")
    rule = "going on" if going_on else "interruption"
    result: dict[str, Any] = {"model": model, "half": half, "rule": rule} | _score(outcomes)
    for kind, those in outcomes.items():
        result[kind] = _summed(those, wanted=kind in WANTED)
    report.finish("overlap", result, as_json=as_json)


def run_words(half: str, recordings: Path | None, *, as_json: bool) -> None:
    """Judge the same sounds by their final words only (`overlap_words`). Raises like
    `run`."""
    lines = read_list(recordings) if recordings is not None else ()
    recognizer = WhisperRecognizer.load(ensure("whisper-tiny.en"))
    heard: dict[str, list[tuple[str, list[overlap_words.Words]]]] = defaultdict(list)
    for sound in overlap_sounds.sounds(half, lines):
        words = overlap_words.words_of(recognizer, sound.sound)
        heard[sound.kind].append((sound.name, words))
        report.say(f"{sound.kind} {sound.name}: {words}")
    result: dict[str, Any] = {"half": half}
    for kind, those in heard.items():
        result[kind] = overlap_words.summed(those, wanted=kind in WANTED)
    report.finish("overlap", result, as_json=as_json)


def onset_samples(sound: Samples) -> int:
    """Where a sound begins: its first window of 20 ms within `LOUD_DB` of the loudest."""
    whole = sound[: len(sound) // PACKET_SAMPLES * PACKET_SAMPLES].astype(np.float64)
    power = (whole.reshape(-1, PACKET_SAMPLES) ** 2).mean(axis=1)
    loud = np.flatnonzero(power > power.max(initial=0.0) * 10 ** (-LOUD_DB / 10))
    return int(loud[0]) * PACKET_SAMPLES if len(loud) else 0


def _score(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """What the whole is worth, in a few numbers."""
    meant = [outcome for outcome in outcomes["interruptions"] if outcome.interrupted]
    stop_ms = [outcome.stop_ms for outcome in meant if outcome.stop_ms is not None]
    listening = outcomes["listening"]
    coughs = [outcome for outcome in outcomes["noises"] if outcome.name.startswith("coughs")]
    stopped = sum(outcome.interrupted for outcome in listening)
    return {
        "stop_ms_p50": _median(stop_ms),
        "stop_ms_p90": round(report.percentile(stop_ms, 90), 1) if stop_ms else None,
        "pausing_stop_ms_p50": _median([outcome.pausing_ms for outcome in meant]),
        "announced_ms_p50": _median([outcome.announced_ms for outcome in meant]),
        "listening_stopped_share": round(stopped / len(listening), 4) if listening else None,
        "coughs": sum(outcome.interrupted for outcome in coughs),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def _summed(outcomes: Sequence[Outcome], *, wanted: bool) -> dict[str, Any]:
    return {
        "sounds": len(outcomes),
        "interrupted": sum(outcome.interrupted for outcome in outcomes),
        "which": [outcome.name for outcome in outcomes if outcome.interrupted is not wanted],
        "held_ms": _median([outcome.held_ms or None for outcome in outcomes]),
        "stop_ms_p50": _median([outcome.stop_ms for outcome in outcomes]),
        "announced_ms_p50": _median([outcome.announced_ms for outcome in outcomes]),
    }
