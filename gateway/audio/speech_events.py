"""What `gateway.audio.segmenter` takes and gives: its settings, its events and its errors.

Every sample number counts 16 kHz samples since the session began.

    SegmenterError               the client's doing; nothing was changed
    ├── OddAudioError            half a sample
    ├── CommitTooShortError      nothing, or next to nothing, to commit
    └── UtteranceTooLongError    push-to-talk went on past max_utterance_s
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import BYTES_PER_SAMPLE
from headstart.gateway.audio.endpointing import EndpointPolicy, FixedSilence


class SegmenterError(Exception):
    """Something about the audio that the client caused; nothing was changed."""


class OddAudioError(SegmenterError):
    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"s16 audio needs an even number of bytes, got {count}")


class CommitTooShortError(SegmenterError):
    """`actual_ms`: what the open utterance holds; 0 when none is open."""

    def __init__(self, minimum_ms: int, actual_ms: float) -> None:
        self.minimum_ms = minimum_ms
        self.actual_ms = actual_ms
        super().__init__(
            f"expected at least {minimum_ms} ms of audio to commit, got {actual_ms:.2f} ms"
        )


class UtteranceTooLongError(SegmenterError):
    """Push-to-talk only: the packet was refused; commit or clear to go on."""

    def __init__(self, limit_s: int, would_be_s: float) -> None:
        self.limit_s = limit_s
        self.would_be_s = would_be_s
        super().__init__(
            f"an utterance may last {limit_s} s, this packet would make it {would_be_s:.2f} s"
        )


@dataclass(frozen=True)
class Detection:
    """Voice activity detection, the protocol's `turn_detection`; None instead: push-to-talk."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    minimum_speech_ms: int = 100  # an utterance with less speech in it is dropped
    endpoint: EndpointPolicy = field(default_factory=FixedSilence)


@dataclass(frozen=True)
class SegmenterSettings:
    chunk_ms: int = 500  # what the engine gets at a time; 200 and 1000 are in use too
    watchdog_ms: int = 1000  # no packet for so long in mid-speech: take it for silence
    commit_min_ms: int = 100
    max_utterance_s: int = 300

    def __post_init__(self) -> None:
        for name in ("chunk_ms", "watchdog_ms", "commit_min_ms", "max_utterance_s"):
            value = getattr(self, name)
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")


class StopCause(Enum):
    SILENCE = "silence"  # the endpoint; a Hushed came before it
    COMMIT = "commit"  # the client said so
    LIMIT = "limit"  # max_utterance_s of unbroken speech


class DropReason(Enum):
    TOO_SHORT = "too_short"
    CLEARED = "cleared"


@dataclass(frozen=True)
class SpeechStarted:
    """`start_sample`: where the delivered audio begins, pre-roll included; `speech_sample`: where
    speech itself does. `push_to_talk`: begun by an append, not heard by the VAD. `continues`: so
    soon after an endpoint that it goes on with that turn."""

    ref: TurnRef
    start_sample: int
    audio_start_ms: int
    speech_sample: int
    push_to_talk: bool
    continues: bool = False


@dataclass(frozen=True)
class SpeechChunk:
    """The utterance's next s16 mono 16 kHz audio. `received_ns`: when its last packet came."""

    ref: TurnRef
    start_sample: int
    pcm: bytes
    received_ns: int

    @property
    def end_sample(self) -> int:
        return self.start_sample + len(self.pcm) // BYTES_PER_SAMPLE


@dataclass(frozen=True)
class PauseDetected:
    """A short silence; all audio up to `end_sample` has been delivered. A second one of the same
    `ref`: the silence has grown, and is to be listened to again."""

    ref: TurnRef
    end_sample: int


@dataclass(frozen=True)
class SpeechResumed:
    """Speech goes on after a hush; `ref` has the new revision, the gap's audio follows."""

    ref: TurnRef
    at_sample: int


@dataclass(frozen=True)
class SpeechStopped:
    """The turn is over.

    `end_sample`: the end of the delivered audio; `endpoint_sample`: where it was decided, which
    is `audio_end_ms`; `last_speech_sample`: the end of the last window with speech (under
    push-to-talk the end of the audio), received at `last_speech_received_ns` and captured, if the
    client stamps its audio, at `last_speech_captured_ns`. `realtime`: came no faster than spoken.
    """

    ref: TurnRef
    cause: StopCause
    end_sample: int
    endpoint_sample: int
    audio_end_ms: int
    last_speech_sample: int
    last_speech_received_ns: int
    last_speech_captured_ns: int | None
    realtime: bool


@dataclass(frozen=True)
class UtteranceDropped:
    """The utterance is to be forgotten."""

    ref: TurnRef
    reason: DropReason
    at_sample: int


SpeechEvent = (
    SpeechStarted | SpeechChunk | PauseDetected | SpeechResumed | SpeechStopped | UtteranceDropped
)
