"""One utterance, from its beginning to its final transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headstart.engine import api
from headstart.gateway.audio.clock import engine_samples_to_exact_ms
from headstart.gateway.audio.segmenter import PauseDetected, SpeechStopped
from headstart.gateway.audio.timbre import Timbre
from headstart.gateway.telemetry.latency import TurnStamps


class Standing(Enum):
    """Whether the client has been told that speech started."""

    ANNOUNCED = "announced"
    HELD = "held"  # over a response, whose audio is paused until this is classified
    HELD_ALOUD = "held_aloud"  # the same, but the response plays on


@dataclass(slots=True)
class Utterance:
    """`shown`: the committed words sent so far as transcription deltas."""

    turn: int
    item_id: str
    start_sample: int
    speech_sample: int
    began_ns: int
    end_sample: int = 0
    by_hand: bool = False
    shown: str = ""
    standing: Standing = Standing.ANNOUNCED
    hushed: PauseDetected | None = None  # the short pause it is in
    hearing: api.Hearing | None = None  # the newest
    text_is_final: bool = False  # for that pause
    is_echo: bool = False  # it began as our own answer, coming back
    timbre: Timbre = field(default_factory=Timbre)  # of what came while it was held

    @property
    def is_held(self) -> bool:
        return self.standing is not Standing.ANNOUNCED

    @property
    def text(self) -> str:
        """Its words so far."""
        return "" if self.hearing is None else self.hearing.committed + self.hearing.tentative

    @property
    def sound_ms(self) -> float:
        """How much of it the recogniser has processed, in ms from the beginning of speech."""
        at_sample = self.speech_sample if self.hearing is None else self.hearing.at_sample
        return max(0.0, engine_samples_to_exact_ms(at_sample - self.speech_sample))

    def take(self, hearing: api.Hearing) -> None:
        """Take new words of this utterance; they arrive in order."""
        self.hearing = hearing
        is_last = self.hushed is None or hearing.ref == self.hushed.ref
        self.text_is_final = hearing.final and is_last


@dataclass(frozen=True, slots=True)
class EndedUtterance:
    """An utterance that has ended. `wants_answer` is false if the client committed it by hand."""

    utterance: Utterance
    event: SpeechStopped
    stopped_ns: int
    stamps: TurnStamps
    wants_answer: bool
