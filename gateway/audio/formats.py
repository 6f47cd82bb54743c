"""Converts a client's audio format to and from the gateway's s16 at 24 kHz.

Only for audio in events; calls have their own codecs (`headstart.gateway.transport.webrtc.codecs`).

"""

from __future__ import annotations

from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.protocol.items import Json
from headstart.gateway.protocol.parse import decode_audio, decode_bytes


def bytes_per_s(sound_format: Json) -> int:
    """Bytes per second of that format."""
    return 2 * CLIENT_RATE_HZ if sound_format["type"] == "audio/pcm" else g711.RATE_HZ


class SoundIn:
    """The input audio of one session. A change of format begins a new stream."""

    def __init__(self) -> None:
        self._decoder: g711.Decoder | None = None
        self._law = ""

    def decode(self, audio: str | bytes, sound_format: Json) -> bytes:
        """s16 mono at 24 kHz, from base64, or from raw bytes in the client's format. Raises
        `ProtocolError` for invalid base64 or a partial sample."""
        if sound_format["type"] == "audio/pcm":
            data = audio if isinstance(audio, bytes) else decode_audio(audio)
        else:
            assert isinstance(audio, str), "the short way is for PCM only"
            data = decode_bytes(audio)
        return self.to_wire(data, sound_format)

    def to_wire(self, data: bytes, sound_format: Json) -> bytes:
        """s16 mono at 24 kHz, from whole samples in the client's format."""
        law = sound_format["type"]
        if law == "audio/pcm":
            self._law = law
            return data
        if law != self._law or self._decoder is None:
            self._law, self._decoder = law, g711.Decoder(law)
        return self._decoder.feed(data)


class SoundOut:
    """The output audio of one session; each response is a stream of its own."""

    def __init__(self) -> None:
        self._encoder: g711.Encoder | None = None
        self._response_id = ""

    def encode(self, response_id: str, pcm24k: bytes, sound_format: Json) -> bytes | None:
        """Audio in the client's format; None: the format is s16 at 24 kHz, send it as it is."""
        law = sound_format["type"]
        if law == "audio/pcm":
            return None
        if response_id != self._response_id or self._encoder is None:
            self._response_id, self._encoder = response_id, g711.Encoder(law)
        return self._encoder.feed(pcm24k)
