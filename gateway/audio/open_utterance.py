"""State of a segmenter: the latest 16 kHz audio, the open utterance, and the speaker's pauses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import (
    BYTES_PER_SAMPLE,
    engine_samples_to_bytes,
    ms_to_engine_samples,
)


class AudioTail:
    """s16 audio [start_sample, end_sample) of a stream: grows at the end by `append`, shrinks at
    the start by `drop_before`. Held in the pieces that came, because most of it is dropped unread.
    Its owner bounds it."""

    def __init__(self) -> None:
        self.start_sample = 0
        self.end_sample = 0
        self._pieces: deque[bytes] = deque()
        self._dropped_bytes = 0  # of the first piece

    @property
    def size_bytes(self) -> int:
        return engine_samples_to_bytes(self.end_sample - self.start_sample)

    def append(self, pcm: bytes) -> None:
        """Append s16 audio at the end."""
        if pcm:
            self._pieces.append(pcm)
            self.end_sample += len(pcm) // BYTES_PER_SAMPLE

    def between(self, start_sample: int, end_sample: int) -> bytes:
        """The audio [start_sample, end_sample), all of which must still be held."""
        assert self.start_sample <= start_sample <= end_sample <= self.end_sample
        if len(self._pieces) > 1:
            self._pieces = deque([b"".join(self._pieces)])
        base = self._dropped_bytes - engine_samples_to_bytes(self.start_sample)
        start, end = engine_samples_to_bytes(start_sample), engine_samples_to_bytes(end_sample)
        return self._pieces[0][base + start : base + end] if self._pieces else b""

    def drop_before(self, sample: int) -> None:
        """Drop the audio before `sample`, if any is held."""
        count = min(sample, self.end_sample) - self.start_sample
        if count <= 0:
            return
        self.start_sample += count
        self._dropped_bytes += engine_samples_to_bytes(count)
        while self._pieces and self._dropped_bytes >= len(self._pieces[0]):
            self._dropped_bytes -= len(self._pieces.popleft())


# Speech that begins this soon after an endpoint continues the turn: the user cannot yet have heard
# and answered any of the response.
CONTINUES_WITHIN_MS = 700


class Arrival(msgspec.Struct, frozen=True, gc=False):  # a third of a NamedTuple's cost
    """Arrival of the packet being processed. `is_real` is false for the watchdog's silence."""

    received_ns: int
    captured_ns: int | None
    is_real: bool = True


@dataclass
class OpenUtterance:
    """`sent_sample`: audio before it has been delivered."""

    ref: TurnRef
    start_sample: int
    sent_sample: int
    noticed_sample: int  # the clock when its beginning was detected
    began: Arrival
    last_speech: Arrival
    hushed: bool = False
    # Of the pause that it is in:
    end_probability: float | None = None
    checks: int = 0  # hushes and rechecks of this pause
    words: str = ""  # that `end_probability` is for
    word_probability: float | None = None  # of these
    mark_probability: float | None = None


class Pauses:
    """Measures pauses after which the speaker continued, in 16 kHz samples: within an utterance,
    and after an endpoint that came too early."""

    def __init__(self) -> None:
        self._silence_samples = 0
        self._last_speech_sample: int | None = None  # of a turn that ended finally, by silence
        self._endpoint_sample = 0

    def add_silence(self, silence_samples: int) -> None:
        """Record one more window of a pause in the open utterance."""
        self._silence_samples = silence_samples

    def add_speech(self) -> int:
        """Record a window of speech; returns the silence before it, 0 if it followed speech."""
        silence, self._silence_samples = self._silence_samples, 0
        return silence

    def ended(self, speech_end_sample: int, endpoint_sample: int, *, counts: bool) -> None:
        """Record the end of the utterance. `counts`: it ended by silence, and `began` is to say
        whether the speaker continued. Of a revocable end, the session says so."""
        self._silence_samples = 0
        self._last_speech_sample = speech_end_sample if counts else None
        self._endpoint_sample = endpoint_sample

    def began(self, speech_sample: int) -> int:
        """Record the start of the next one; returns the silence before it, 0 if it is no
        continuation."""
        self._silence_samples = 0
        last, self._last_speech_sample = self._last_speech_sample, None
        gone = speech_sample - self._endpoint_sample
        if last is None or gone > ms_to_engine_samples(CONTINUES_WITHIN_MS):
            return 0
        return max(0, speech_sample - last)
