"""Sines as a call's packets, and how to recognise them again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt
from aiortc.rtp import RtpPacket

from headstart.gateway.audio import g711
from headstart.gateway.transport.webrtc.codecs import Codec

Samples = npt.NDArray[np.int16]


OPUS_TYPE = 111
FORMATS = {
    OPUS_TYPE: Codec.OPUS,
    0: Codec.PCMU,
    8: Codec.PCMA,
    13: Codec.NOISE,
    101: Codec.EVENT,
}


def rtp(
    number: int,
    payload: bytes,
    timestamp: int | None = None,
    payload_type: int = OPUS_TYPE,
    source: int = 7,
) -> RtpPacket:
    """A packet; without a `timestamp` that of the number, 20 ms at 48 kHz each."""
    packet = RtpPacket(
        payload_type=payload_type,
        sequence_number=number & 0xFFFF,
        timestamp=(number * 960 if timestamp is None else timestamp) & 0xFFFFFFFF,
    )
    packet.ssrc, packet.payload = source, payload
    return packet


def g711_packets(sound: Samples, law: g711.Law, frame_ms: int = 20) -> list[bytes]:
    """Mono int16[n] at 8 kHz as packets."""
    codes = g711.compress(law, sound)
    step = 8 * frame_ms
    return [codes[at : at + step] for at in range(0, len(codes) - step + 1, step)]


def sine(hz: float, seconds: float, rate_hz: int, amplitude: float = 8000) -> Samples:
    at = np.arange(round(seconds * rate_hz)) / rate_hz
    return np.rint(amplitude * np.sin(2 * np.pi * hz * at)).astype(np.int16)


def opus_packets(
    sound: Samples,
    rate_hz: int,
    channels: int = 1,
    frame_ms: int = 20,
    bit_rate: int = 32_000,
    **options: str,
) -> list[bytes]:
    """Mono int16[n] as Opus packets; with two channels both hold it. `options`: FFmpeg's."""
    codec = av.CodecContext.create("libopus", "w")
    codec.bit_rate = bit_rate
    codec.format = "s16"
    codec.layout = "stereo" if channels == 2 else "mono"
    codec.sample_rate = rate_hz
    codec.time_base = Fraction(1, rate_hz)
    codec.options = {"frame_duration": str(frame_ms)} | options
    step = rate_hz * frame_ms // 1000
    packets = []
    for start in range(0, len(sound) - step + 1, step):
        part = np.repeat(sound[start : start + step], channels)[None]
        frame = av.AudioFrame.from_ndarray(
            part, format="s16", layout="stereo" if channels == 2 else "mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = rate_hz, start, codec.time_base
        packets += [bytes(packet) for packet in codec.encode(frame)]
    return packets


def pitch_hz(sound: Samples, rate_hz: int) -> float:
    """The strongest frequency, between the bins of a windowed spectrum."""
    window = np.hanning(len(sound))
    power = np.abs(np.fft.rfft(sound * window))
    top = int(power[1:-1].argmax()) + 1
    a, b, c = (math.log(max(x, 1e-9)) for x in power[top - 1 : top + 2])
    return (top + (a - c) / (2 * (a - 2 * b + c))) * rate_hz / len(sound)


def rms(sound: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(sound.astype(np.float64))))) if len(sound) else 0.0


def parts(sound: Samples, samples: int) -> Iterator[Samples]:
    for start in range(0, len(sound), samples):
        yield sound[start : start + samples]
