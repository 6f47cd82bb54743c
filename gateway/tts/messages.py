"""Messages between gateway and TTS worker: msgpack with a 4-byte length prefix, over pipes.

Audio is always s16 mono at 24 kHz. `generation` names the response, as in `headstart.engine.api`.

"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class VoiceMessage(msgspec.Struct, frozen=True, tag_field="op"):
    """Base of all messages."""


class Speak(VoiceMessage, frozen=True, tag="speak"):
    """Speak `text` after what was requested before. `clause` counts from 0 within the response;
    `speed` 1.0 is the voice's own."""

    session: str
    generation: int
    clause: int
    text: str
    speed: float = 1.0


class Stop(VoiceMessage, frozen=True, tag="stop"):
    """Make no more audio for that response, or with None for any of that session's."""

    session: str
    generation: int | None = None


class Prepare(VoiceMessage, frozen=True, tag="prepare"):
    """The session's next response will probably begin with `text`: make its first piece, and keep
    it for a `Speak` of this text, at this speed, that begins a response. A later one replaces
    it."""

    session: str
    text: str
    speed: float = 1.0


class Loaded(VoiceMessage, frozen=True, tag="loaded"):
    """The voice is ready."""

    voice: str
    load_s: float


class SynthesisedAudio(VoiceMessage, frozen=True, tag="sound"):
    """The next piece of a clause."""

    session: str
    generation: int
    clause: int
    pcm: bytes

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2


class ClauseDone(VoiceMessage, frozen=True, tag="said"):
    """A clause has ended. `problem`: why it, or the rest of it, could not be spoken; else empty."""

    session: str
    generation: int
    clause: int
    problem: str = ""


VoiceCommand = Speak | Stop | Prepare
VoiceEvent = Loaded | SynthesisedAudio | ClauseDone

encoder = msgspec.msgpack.Encoder()


def pack(message: VoiceMessage) -> bytes:
    """One message as sent through the pipe."""
    body = encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Parses messages of one type from a byte stream. Holds less than one message."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Every complete message. Raises ValueError for invalid data."""
        self._held += data
        messages = []
        while len(self._held) >= _LENGTH.size:
            (size_bytes,) = _LENGTH.unpack_from(self._held)
            if size_bytes > MESSAGE_BYTES_MAX:
                raise ValueError(
                    f"a message of {size_bytes} bytes; {MESSAGE_BYTES_MAX} are allowed"
                )
            end = _LENGTH.size + size_bytes
            if len(self._held) < end:
                break
            messages.append(self._decoder.decode(bytes(self._held[_LENGTH.size : end])))
            del self._held[:end]
        return messages
