"""The settings, events and errors of `gateway.audio.segmenter`.

All sample numbers count 16 kHz samples since the session began.

    SegmenterError               caused by the client; nothing was changed
    ├── OddAudioError            half a sample
    ├── CommitTooShortError      nothing, or too little, to commit
    └── UtteranceTooLongError    push-to-talk exceeded max_utterance_s

"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import BYTES_PER_SAMPLE
from headstart.gateway.audio.endpointing import EndpointPolicy, FixedSilence


class SegmenterError(Exception):
    """An error in the audio, caused by the client; nothing was changed."""


class OddAudioError(SegmenterError):
    """Half a sample came. `count`: bytes of the packet."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"s16 audio needs an even number of bytes, got {count}")


class CommitTooShortError(SegmenterError):
    """`actual_ms`: the length of the open utterance; 0 if none is open."""

    def __init__(self, minimum_ms: int, actual_ms: float) -> None:
        self.minimum_ms = minimum_ms
        self.actual_ms = actual_ms
        super().__init__(
            f"expected at least {minimum_ms} ms of audio to commit, got {actual_ms:.2f} ms"
        )


class UtteranceTooLongError(SegmenterError):
    """Push-to-talk only: the packet was refused; commit or clear to continue."""

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
    minimum_speech_ms: int = 100  # an utterance with less speech is dropped
    endpoint: EndpointPolicy = field(default_factory=FixedSilence)


@dataclass(frozen=True)
class SegmenterSettings:
    """Lengths of the session's audio. Raises `ValueError` for one that is not positive."""

    chunk_ms: int = 500  # what the engine gets at a time; 200 and 1000 are also used
    watchdog_ms: int = 1000  # without a packet for this long during speech, assume silence
    commit_min_ms: int = 100
    max_utterance_s: int = 300

    def __post_init__(self) -> None:
        for name in ("chunk_ms", "watchdog_ms", "commit_min_ms", "max_utterance_s"):
            value = getattr(self, name)
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")


class StopCause(Enum):
    """Why an utterance is over."""

    SILENCE = "silence"  # the endpoint, after a PauseDetected
    COMMIT = "commit"  # requested by the client
    LIMIT = "limit"  # max_utterance_s of uninterrupted speech


class DropReason(Enum):
    """Why an utterance becomes no item."""

    TOO_SHORT = "too_short"
    CLEARED = "cleared"


@dataclass(frozen=True)
class SpeechStarted:
    """`start_sample`: start of the delivered audio, with pre-roll; `speech_sample`: start of the
    speech. `push_to_talk`: begun by an append, not by the VAD. `continues`: so soon after an
    endpoint that it continues that turn."""

    ref: TurnRef
    start_sample: int
    audio_start_ms: int
    speech_sample: int
    push_to_talk: bool
    continues: bool = False


@dataclass(frozen=True)
class SpeechChunk:
    """The utterance's next s16 mono 16 kHz audio. `received_ns`: when its last packet arrived."""

    ref: TurnRef
    start_sample: int
    pcm: bytes
    received_ns: int

    @property
    def end_sample(self) -> int:
        return self.start_sample + len(self.pcm) // BYTES_PER_SAMPLE


@dataclass(frozen=True)
class PauseDetected:
    """A short pause; all audio up to `end_sample` has been delivered. A second one with the same
    `ref`: the silence has grown, and is to be judged again."""

    ref: TurnRef
    end_sample: int


@dataclass(frozen=True)
class SpeechResumed:
    """Speech continues after a hush; `ref` has the new revision, the audio of the gap follows."""

    ref: TurnRef
    at_sample: int


@dataclass(frozen=True)
class SpeechStopped:
    """The turn is over.

    `end_sample`: the end of the delivered audio; `endpoint_sample`: where the end was decided,
    which is `audio_end_ms`; `last_speech_sample`: the end of the last window with speech (under
    push-to-talk the end of the audio), received at `last_speech_received_ns` and captured, if the
    client stamps its audio, at `last_speech_captured_ns`. `realtime`: arrived no faster than
    spoken. `revocable_ms`: for how long speech that goes on takes this end back; 0: it is final.

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
    revocable_ms: int = 0


@dataclass(frozen=True)
class UtteranceDropped:
    """The utterance is dropped."""

    ref: TurnRef
    reason: DropReason
    at_sample: int


SpeechEvent = (
    SpeechStarted | SpeechChunk | PauseDetected | SpeechResumed | SpeechStopped | UtteranceDropped
)
