"""A call's codecs: what its packets may contain, what an offer says of them, and our encoders (20
ms of audio at 24 kHz in, one packet's payload out)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from aiortc import RTCRtpCodecCapability, RTCRtpCodecParameters, RTCRtpReceiver

from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.transport.webrtc.opus import Control, OpusEncoder
from headstart.gateway.transport.webrtc.opus import packet_samples as opus_samples
from headstart.gateway.transport.webrtc.receive_buffer import RTP_RATE_HZ

G711_RATE_HZ = 8_000
G711_BYTES_MAX = G711_RATE_HZ * 200 // 1000
"""The longest plausible packet: telephones put 10 to 60 ms into one."""
COMFORT_NOISE_TYPE = 13
"""The payload type of comfort noise, even if the offer does not list it: RFC 3551 §6."""


class Codec(StrEnum):
    """Named by their MIME types, in lower case."""

    OPUS = "opus"
    PCMU = "pcmu"
    PCMA = "pcma"
    EVENT = "telephone-event"  # a key press, RFC 4733
    NOISE = "cn"  # comfort noise, RFC 3389

    @property
    def is_sound(self) -> bool:
        """False: such a packet describes the audio but contains none."""
        return self in SOUND

    @property
    def rate_hz(self) -> int:
        """The RTP clock rate of an audio codec."""
        return RTP_RATE_HZ if self is Codec.OPUS else G711_RATE_HZ

    def samples(self, payload: bytes) -> int | None:
        """A packet's duration in samples at 48 kHz, for audio codecs; None: the payload is
        invalid."""
        if self is Codec.OPUS:
            return opus_samples(payload)
        if not 0 < len(payload) <= G711_BYTES_MAX:
            return None
        return len(payload) * (RTP_RATE_HZ // G711_RATE_HZ)


SOUND = (Codec.OPUS, Codec.PCMU, Codec.PCMA)
"""The codecs that calls can use, the preferred first."""

Formats = Mapping[int, Codec]
"""What a packet contains, by its payload type."""


def codec_of(mime_type: str) -> Codec | None:
    """None: not a codec we support."""
    name = mime_type.lower().removeprefix("audio/")
    return next((codec for codec in Codec if codec == name), None)


def preferences() -> list[RTCRtpCodecCapability]:
    """The codecs that a call may use, for either end's transceiver."""
    audio = RTCRtpReceiver.getCapabilities("audio")
    assert audio is not None
    ours = {codec_of(each.mimeType): each for each in audio.codecs}
    return [ours[codec] for codec in SOUND]


def spoken(agreed: Sequence[RTCRtpCodecParameters]) -> Codec:
    """The codec that aiortc sends, of those negotiated by `preferences`."""
    codec = codec_of(agreed[0].mimeType)
    assert codec in SOUND, agreed
    return codec


def key_presses(
    offered: Iterable[RTCRtpCodecParameters], negotiated: Iterable[RTCRtpCodecParameters]
) -> list[RTCRtpCodecParameters]:
    """The telephone events of the offer that have the clock rate of a negotiated codec (RFC 4733
    §2.1). They must be negotiated too, otherwise telephones send tones instead."""
    rates = {codec.clockRate for codec in negotiated}
    return [
        RTCRtpCodecParameters(
            mimeType=each.mimeType, clockRate=each.clockRate, payloadType=each.payloadType
        )
        for each in offered
        if codec_of(each.mimeType) is Codec.EVENT and each.clockRate in rates
    ]


def formats(
    offered: Iterable[RTCRtpCodecParameters], negotiated: Iterable[RTCRtpCodecParameters]
) -> dict[int, Codec]:
    """What packets may contain: the negotiated codecs, and packets without audio."""
    found = {COMFORT_NOISE_TYPE: Codec.NOISE}
    for each in (*offered, *negotiated):
        codec = codec_of(each.mimeType)
        assert each.payloadType is not None
        if codec is not None and not codec.is_sound:
            found[each.payloadType] = codec
    for each in negotiated:
        codec = codec_of(each.mimeType)
        if codec is not None and each.payloadType is not None:
            found[each.payloadType] = codec
    return found


FRAME_MS = 20
BIT_RATE = 32_000
OPUS_SETTINGS = {
    Control.BIT_RATE: BIT_RATE,
    Control.COMPLEXITY: 5,  # of 10: half the time, no audible difference for speech
    Control.FEC: 1,
    Control.PACKET_LOSS: 5,
    Control.VARIABLE_RATE: 1,
    Control.CONSTRAINED_RATE: 0,
}

Encode = Callable[[bytes], bytes]
"""Encodes one frame of s16 mono, `FRAME_MS` long, of one stream."""


def encoder_of(codec: Codec) -> Encode:
    """The encoder of a new stream."""
    match codec:
        case Codec.PCMU:
            return g711.Encoder("audio/pcmu").feed
        case Codec.PCMA:
            return g711.Encoder("audio/pcma").feed
        case _:
            assert codec is Codec.OPUS, codec
            return OpusEncoder(CLIENT_RATE_HZ, OPUS_SETTINGS).encode
