"""Our sound as a call's codec has it: 20 ms of 24 kHz in, one packet's payload out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np

from gateway.media import g711
from gateway.media.timebase import WIRE_RATE_HZ
from gateway.rtc.codecs import Codec

FRAME_MS = 20
BIT_RATE = 32_000
OPUS_OPTIONS = {
    "application": "voip",
    "frame_duration": str(FRAME_MS),
    "compression_level": "5",  # of 10: half the time, and no difference that a voice shows
    "fec": "1",
    "packet_loss": "5",
}

Encode = Callable[[bytes], bytes]
"""A frame of s16 mono, `FRAME_MS` long, of one stream."""


def encoder_of(codec: Codec) -> Encode:
    """A new stream's."""
    match codec:
        case Codec.PCMU:
            return g711.Encoder("audio/pcmu").feed
        case Codec.PCMA:
            return g711.Encoder("audio/pcma").feed
        case _:
            assert codec is Codec.OPUS, codec
            return _opus()


def _opus() -> Encode:
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, av.AudioCodecContext)
    codec.bit_rate = BIT_RATE
    codec.format = "s16"
    codec.layout = "mono"
    codec.sample_rate = WIRE_RATE_HZ
    codec.time_base = Fraction(1, WIRE_RATE_HZ)
    codec.options = OPUS_OPTIONS

    def encode(pcm: bytes) -> bytes:
        sound = np.frombuffer(pcm, np.int16)[None]
        frame = av.AudioFrame.from_ndarray(sound, format="s16", layout="mono")
        frame.sample_rate = WIRE_RATE_HZ
        (packet,) = codec.encode(frame)
        return bytes(packet)

    return encode
