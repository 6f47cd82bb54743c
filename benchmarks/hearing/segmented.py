"""A clip in the steps in which the gateway's segmenter hands it to the recogniser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SegmenterSettings,
    SpeechChunk,
    SpeechSegmenter,
    SpeechStopped,
)

Sound = npt.NDArray[np.float32]  # [samples], 16 kHz mono

PACKET_SAMPLES = CLIENT_RATE_HZ // 50
ROOM_LEVEL = 8  # s16 units either way
LEAD_S, TAIL_S = 1.0, 3.0


@dataclass(frozen=True, eq=False)
class Chunk:
    """Audio for the recogniser; `end_sample` counts from the clip's beginning."""

    sound: Sound
    end_sample: int


class Pause(Enum):
    """`HUSH`: a short silence, the turn may go on; `END`: the turn is over."""

    HUSH = auto()
    END = auto()


Step = Chunk | Pause


def segmented_clip(sound: Sound, chunk_ms: int) -> Iterator[Step]:
    """Steps of a clip in a quiet room, sent in packets of 20 ms through the gateway's segmenter."""
    random = np.random.default_rng(1)
    lead, tail = (
        random.uniform(-ROOM_LEVEL, ROOM_LEVEL, int(seconds * SAMPLE_RATE_HZ)) / 32768
        for seconds in (LEAD_S, TAIL_S)
    )
    whole = np.concatenate([lead, sound, tail])
    pcm = (np.clip(whole, -1, 32767 / 32768) * 32768).astype("<i2").tobytes()
    upwards = StreamResampler(SAMPLE_RATE_HZ, CLIENT_RATE_HZ)
    wire = upwards.feed_pcm(pcm) + upwards.flush_pcm()
    for step in segmented_stream(wire, chunk_ms):
        if isinstance(step, Chunk):
            yield Chunk(step.sound, min(max(step.end_sample - len(lead), 0), len(sound)))
        else:
            yield step


def segmented_stream(wire: bytes, chunk_ms: int) -> Iterator[Step]:
    """What a client sends, s16 mono 24 kHz, in packets of 20 ms; `end_sample`: since it began."""
    listener = SpeechSegmenter(Detection(), SegmenterSettings(chunk_ms=chunk_ms))
    step_bytes = 2 * PACKET_SAMPLES
    for start in range(0, len(wire), step_bytes):
        received_ns = start // 2 * 10**9 // CLIENT_RATE_HZ
        for event in listener.feed(wire[start : start + step_bytes], received_ns):
            match event:
                case SpeechChunk():
                    heard = np.frombuffer(event.pcm, "<i2").astype(np.float32) / np.float32(32768)
                    yield Chunk(heard, event.start_sample + len(heard))
                case PauseDetected():
                    yield Pause.HUSH
                case SpeechStopped():
                    yield Pause.END
