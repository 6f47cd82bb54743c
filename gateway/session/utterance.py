"""One utterance, from its beginning to its final transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headstart.engine import api
from headstart.gateway.audio.clock import NS_PER_MS, engine_samples_to_exact_ms
from headstart.gateway.audio.segmenter import PauseDetected, SpeechStopped
from headstart.gateway.audio.timbre import Timbre
from headstart.gateway.telemetry.latency import TurnStamps

CALLS_AFTER_MS = 700  # as `semantic` waits after a whole message, rounded up


class Standing(Enum):
    """Whether the client has been told that speech started."""

    ANNOUNCED = "announced"
    HELD = "held"  # over a response, whose audio is paused until this is classified
    HELD_ALOUD = "held_aloud"  # the same, but the response plays on


@dataclass(slots=True)
class Utterance:
    """`shown`: the committed words sent so far as transcription deltas. `before`: the message that
    it may continue, and `continues`: that it does (`headstart.gateway.session.continuation`);
    `joined_samples`: the length of that one's audio."""

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
    before: EndedUtterance | None = None
    continues: EndedUtterance | None = None
    joined_samples: int = 0

    @property
    def is_held(self) -> bool:
        return self.standing is not Standing.ANNOUNCED

    @property
    def text(self) -> str:
        """Its words so far, with those of the message it continues."""
        return "" if self.hearing is None else self.hearing.committed + self.hearing.tentative

    @property
    def said_something(self) -> bool:
        """Whether there are words, in the message it continues at least."""
        before = None if self.continues is None else self.continues.utterance
        return bool(self.text) or (before is not None and before.said_something)

    def uses_id(self, item_id: str) -> bool:
        """Whether that is the id of its item, or of the item of the message that it continues."""
        joined = (over.utterance.item_id for over in (self.before, self.continues) if over)
        return item_id == self.item_id or item_id in joined

    @property
    def length_samples(self) -> int:
        """The length of its audio once it has ended, with that of the message it continues."""
        return self.end_sample - self.start_sample + self.joined_samples

    @property
    def sound_ms(self) -> float:
        """How much of it the recogniser has processed, in ms from the beginning of speech."""
        at_sample = self.speech_sample if self.hearing is None else self.hearing.at_sample
        return max(0.0, engine_samples_to_exact_ms(at_sample - self.speech_sample))

    def take(self, hearing: api.Hearing) -> bool:
        """Take new words of this utterance; they arrive in order. Returns false for words of a
        second part alone, which the engine sent before it had joined both parts."""
        if self.continues is not None and not hearing.continued:
            return False
        self.hearing = hearing
        is_last = self.hushed is None or hearing.ref == self.hushed.ref
        self.text_is_final = hearing.final and is_last
        return True


@dataclass(frozen=True, slots=True)
class EndedUtterance:
    """An utterance that has ended. `wants_answer` is false if the client committed it by hand."""

    utterance: Utterance
    event: SpeechStopped
    stopped_ns: int
    stamps: TurnStamps
    wants_answer: bool

    @property
    def speech_ms(self) -> float:
        """From its first to its last window of speech."""
        samples = self.event.last_speech_sample - self.utterance.speech_sample
        return engine_samples_to_exact_ms(samples)

    @property
    def unheard_ms(self) -> float:
        """How much of that the recogniser has not come to; 0 once its words are final."""
        if self.utterance.text_is_final:
            return 0.0
        return max(0.0, self.speech_ms - self.utterance.sound_ms)

    @property
    def calls_from_ns(self) -> int:
        """When functions may be called to answer it; 0: at any time. A call cannot be taken back,
        so after a revocable end it waits for the silence that would end a turn otherwise."""
        if not self.event.revocable_ms:
            return 0
        silence = self.event.endpoint_sample - self.event.last_speech_sample
        left_ms = CALLS_AFTER_MS - engine_samples_to_exact_ms(silence)
        return self.stopped_ns + max(0, round(left_ms * NS_PER_MS))
