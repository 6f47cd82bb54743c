"""A listener on the bench: scripted detectors, packets of any size, and the events taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from headstart.gateway.audio.clock import (
    NS_PER_MS,
    client_samples_to_exact_ms,
    ms_to_client_samples,
)
from headstart.gateway.audio.segmenter import (
    Detection,
    SegmenterSettings,
    SpeechChunk,
    SpeechEvent,
    SpeechSegmenter,
    SpeechStopped,
)
from headstart.gateway.audio.vad import WINDOW_BYTES, WINDOW_MS, SpeechScore

E = TypeVar("E")


class Script:
    """A speech detector that answers from a string, one character a window; silence after it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.asked = 0

    def judge(self, pcm: bytes) -> bytes:
        first, self.asked = self.asked, self.asked + len(pcm) // WINDOW_BYTES
        return bytes(self.pattern[i : i + 1] == "#" for i in range(first, self.asked))


def scripted(pattern: str) -> Callable[[float], SpeechScore]:
    score = Script(pattern)
    return lambda threshold: score


def ramp(ms: int) -> bytes:
    """Audio whose samples differ, so that lost or doubled ones show."""
    return (np.arange(ms_to_client_samples(ms)) % 20_011 - 10_000).astype(np.int16).tobytes()


def play(
    listener: SpeechSegmenter, pcm: bytes, size: int = 480, speed: float = 1.0
) -> list[SpeechEvent]:
    """Feed in packets of `size` samples, `speed` times as fast as real time (0: all at once)."""
    events: list[SpeechEvent] = []
    for at in range(0, len(pcm), 2 * size):
        packet = pcm[at : at + 2 * size]
        passed_ms = client_samples_to_exact_ms((at + len(packet)) // 2) / speed if speed else 0.0
        events += listener.feed(packet, int(passed_ms * NS_PER_MS))
    return events


def run_script(
    pattern: str, detection: Detection | None = None, chunk_ms: int = 500
) -> list[SpeechEvent]:
    """The events of a scripted session, 20 ms packets."""
    listener = SpeechSegmenter(
        detection or Detection(), SegmenterSettings(chunk_ms=chunk_ms), score=scripted(pattern)
    )
    return play(listener, ramp(len(pattern) * WINDOW_MS))


def only(events: Sequence[SpeechEvent], kind: type[E]) -> list[E]:
    return [e for e in events if isinstance(e, kind)]


def names(events: Sequence[SpeechEvent]) -> list[str]:
    return [type(e).__name__ for e in events]


def story(events: Sequence[SpeechEvent]) -> list[SpeechEvent]:
    """The events without what wall time put into them."""
    plain: list[SpeechEvent] = []
    for event in events:
        if isinstance(event, SpeechChunk):
            event = replace(event, received_ns=0)
        elif isinstance(event, SpeechStopped):
            event = replace(event, last_speech_received_ns=0, realtime=False)
        plain.append(event)
    return plain


def delivered(events: Sequence[SpeechEvent]) -> bytes:
    """The chunks of one utterance, joined; checks that each follows on the one before."""
    chunks = only(events, SpeechChunk)
    for left, right in pairwise(chunks):
        assert right.start_sample == left.end_sample
    return b"".join(c.pcm for c in chunks)


def watch(listener: SpeechSegmenter, from_ms: int, to_ms: int) -> list[SpeechEvent]:
    events: list[SpeechEvent] = []
    for now_ms in range(from_ms, to_ms, 100):
        events += listener.tick(now_ms * NS_PER_MS)
    return events
