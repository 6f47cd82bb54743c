"""Feeds a clip to a system as a microphone would: 20 ms at a time, each when it has been spoken.

A second of a quiet room comes before the clip, and more of it behind, until the client has seen
enough. Every system gets its sound by this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs import pauses
from headstart.benchmarks.inputs.pauses import RATE_HZ
from headstart.benchmarks.peers.clips import Clip
from headstart.gateway.audio.resample import StreamResampler

PACKET_S = 0.02
LEAD_S = 1.0
LONGEST_S = 25.0
"""A system that has not answered this long after the clip will not."""
AT_LEAST_S = 2.5
"""After the clip: an answer that began too early may be followed by another."""
QUIET_S = 0.8
OPEN_WAIT_S = 60.0


class ConversationFailed(RuntimeError):
    """A system refused a conversation, or broke it off."""


@dataclass(frozen=True)
class Stream:
    """A clip in its room, s16 mono at `rate_hz`, and where its last sample is."""

    sound: npt.NDArray[np.int16]
    speech_end: int
    rate_hz: int


def stream_of(clip: Clip, rate_hz: int) -> Stream:
    """The clip at `rate_hz`, with room noise before it and for `LONGEST_S` behind it."""
    lead, tail = pauses.room(LEAD_S * 1000), pauses.room(LONGEST_S * 1000)
    sound = np.concatenate([lead, clip.sound, tail])
    if rate_hz != RATE_HZ:
        sound = StreamResampler(RATE_HZ, rate_hz).feed(sound)
    return Stream(sound, (len(lead) + len(clip.sound)) * rate_hz // RATE_HZ, rate_hz)


async def feed(
    stream: Stream, send: Callable[[bytes], Awaitable[None]], enough: Callable[[float], bool]
) -> float:
    """Send the stream in real time until `enough`, which is asked after each packet behind the
    clip, with the time since the clip's end in s. Returns when, by `time.monotonic()`, the packet
    with the clip's last sample was sent."""
    step = round(stream.rate_hz * PACKET_S)
    began_s = time.monotonic()
    speech_end_at_s: float | None = None
    for number, start in enumerate(range(0, len(stream.sound), step), 1):
        await asyncio.sleep(max(0.0, began_s + number * PACKET_S - time.monotonic()))
        await send(stream.sound[start : start + step].tobytes())
        now_s = time.monotonic()
        if speech_end_at_s is not None:
            if enough(now_s - speech_end_at_s):
                break
        elif start + step >= stream.speech_end:
            speech_end_at_s = now_s
    assert speech_end_at_s is not None, "the clip is in its stream"
    return speech_end_at_s
