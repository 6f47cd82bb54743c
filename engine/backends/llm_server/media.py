"""Pictures and sounds as parts of chat messages, for servers whose model sees or hears.

    picture               ─▶ JPEG, once                      ─▶ {"type": "image_url", …}
    every 2 s of speech   ─▶ WAV; closed, it never changes   ─▶ {"type": "input_audio", …}

A part is a token of its own among those of `messages`, followed by as many fillers as the server
needs tokens for it, as measured at start. So whatever sessions do with tokens they do with parts:
compare, cut, forget. The same content is the same token and the same bytes each time, so that it
is found in the server's caches; where the server takes them, parts have a `uuid` by content.

Bounds: the parts of a session take `MAX_SESSION_BYTES` at most. Beyond that, the oldest of those
that its stream no longer reads are dropped; a part that is still read is kept.
"""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import av
import numpy as np

from headstart.engine.api import SAMPLE_RATE_HZ, Image
from headstart.engine.backends.llm_server.capabilities import PartCosts
from headstart.engine.chat.render import Modality
from headstart.engine.interfaces import EmbeddedRecognition, Pcm, TokenRuns, View
from headstart.engine.kvcache.token_stream import Stream

UNIT_SAMPLES = 2 * SAMPLE_RATE_HZ
MAX_FRAMES = 120
"""Of one utterance; later ones are dropped."""
MAX_SESSION_BYTES = 64 << 20
FILLER = 1 << 46
"""Stands for one more token of the part before it."""
FIRST_PART = FILLER + 1
JPEG_QUANTISER = 4  # of FFmpeg's 2 (best) to 31

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part as it is sent. `num_bytes`: of its base64 text."""

    json: Json
    num_bytes: int


@dataclass(slots=True)
class _Held:
    """Parts of one stream, the oldest first."""

    tokens: dict[int, int] = field(default_factory=dict)  # to their bytes
    num_bytes: int = 0


class MediaParts:
    """The parts of all sessions by token. `costs`: tokens of parts at the servers."""

    def __init__(self, costs: PartCosts | None = None) -> None:
        self.costs = costs or PartCosts()
        self._token_of: dict[bytes, int] = {}
        self._parts: dict[int, Part] = {}
        self._digest_of: dict[int, bytes] = {}
        self._holders: dict[int, int] = {}  # streams that hold a part
        # Not weak: the parts of a stream that is gone would never be let go of.
        self._held: dict[Stream, _Held] = {}
        self._next = FIRST_PART

    def __len__(self) -> int:
        return len(self._parts)

    def json(self, token: int, *, named: bool = False) -> Json | None:
        """The part that a token stands for, with its `uuid` if it is to be `named`; None for a
        filler, and for one that was dropped."""
        part = self._parts.get(token)
        if part is None:
            return None
        return part.json | {"uuid": self._digest_of[token].hex()} if named else part.json

    def picture(self, image: Image, stream: Stream) -> tuple[int, ...]:
        """Tokens of a picture in `stream`."""
        raw = f"{image.width}x{image.height}:".encode() + image.rgb
        count = self.costs.picture(image.width * image.height)
        return self._tokens("image", raw, lambda: _jpeg(image), count, stream)

    def sound(self, pcm: Pcm, stream: Stream) -> tuple[int, ...]:
        """Tokens of at most `UNIT_SAMPLES` of sound in `stream`."""
        raw = (np.clip(pcm, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        count = self.costs.sound(len(pcm) / UNIT_SAMPLES)
        return self._tokens("audio", raw, lambda: _wav(raw), count, stream)

    def _tokens(
        self, kind: str, raw: bytes, encode: Callable[[], bytes], count: int, stream: Stream
    ) -> tuple[int, ...]:
        known_by = blake2b(kind.encode() + stream.share_domain, digest_size=32).digest()
        digest = blake2b(raw, digest_size=16, key=known_by).digest()
        token = self._token_of.get(digest)
        if token is None:
            token, self._next = self._next, self._next + 1
            self._token_of[digest], self._digest_of[token] = token, digest
            content = encode()
            json = _image_json(content) if kind == "image" else _audio_json(content)
            self._parts[token] = Part(json, 4 * len(content) // 3)
        self._hold(token, stream)
        return (token, *(FILLER for _ in range(count - 1)))

    # --- who holds what --------------------------------------------------------------------------

    def _hold(self, token: int, stream: Stream) -> None:
        for other in [each for each in self._held if each.closed]:
            self._drop(self._held.pop(other), ())
        held = self._held.setdefault(stream, _Held())
        if token in held.tokens:
            held.tokens[token] = held.tokens.pop(token)  # the newest now
            return
        held.tokens[token] = self._parts[token].num_bytes
        held.num_bytes += held.tokens[token]
        self._holders[token] = self._holders.get(token, 0) + 1
        if held.num_bytes > MAX_SESSION_BYTES:
            self._drop(held, {*stream.tokens, *list(held.tokens)[-MAX_FRAMES:]})

    def _drop(self, held: _Held, keep: Collection[int]) -> None:
        """Let go of a stream's parts but `keep`; those that nobody holds are gone."""
        for token in [each for each in held.tokens if each not in keep]:
            held.num_bytes -= held.tokens.pop(token)
            self._holders[token] -= 1
            if not self._holders[token]:
                del self._holders[token], self._parts[token]
                del self._token_of[self._digest_of.pop(token)]


def picture_part(side: int) -> Json:
    """A grey picture, as a part of a message."""
    return _image_json(_jpeg(Image(side, side, bytes([128]) * (3 * side * side))))


def sound_part() -> Json:
    """Two seconds of silence, as a part of a message."""
    return _audio_json(_wav(bytes(2 * UNIT_SAMPLES)))


def _image_json(jpeg: bytes) -> Json:
    text = base64.b64encode(jpeg).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}}


def _audio_json(wav: bytes) -> Json:
    text = base64.b64encode(wav).decode()
    return {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}}


def _jpeg(image: Image) -> bytes:
    pixels = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(
        format="yuvj420p", threads=1
    )
    codec = av.CodecContext.create("mjpeg", "w")
    codec.width, codec.height, codec.pix_fmt = image.width, image.height, "yuvj420p"
    codec.time_base = Fraction(1, 25)
    codec.options = {"qmin": str(JPEG_QUANTISER), "qmax": str(JPEG_QUANTISER)}
    frame.pts = 0
    return b"".join(bytes(packet) for packet in (*codec.encode(frame), *codec.encode(None)))


def _wav(pcm: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(pcm)
    return out.getvalue()


class PartImageEncoder:
    """`headstart.engine.interfaces.ImageEncoder`: the picture itself goes to the server."""

    def __init__(self, media: MediaParts) -> None:
        self._media = media

    def encode_image(self, image: Image, stream: Stream, *, live: bool = False) -> View:
        ids = self._media.picture(image, stream)
        return View(ids, f"picture {image.width} x {image.height}", key=str(ids[0]))


class PartListening:
    """An open utterance (`headstart.engine.interfaces.LiveFrameEncoder`): closed parts, and the
    sound behind them that is not one yet."""

    def __init__(self, media: MediaParts, stream: Stream, *, sees: bool) -> None:
        self._media, self._stream, self._sees = media, stream, sees
        self._closed: list[tuple[Modality, tuple[int, ...]]] = []
        self._open: Pcm = np.zeros(0, np.float32)
        self._tail: tuple[int, ...] = ()
        self._frames = 0

    def hear(self, pcm: Pcm) -> None:
        self._tail = ()
        self._open = np.concatenate([self._open, pcm])
        while len(self._open) >= UNIT_SAMPLES:
            unit, self._open = self._open[:UNIT_SAMPLES], self._open[UNIT_SAMPLES:]
            self._closed.append((Modality.AUDIO, self._media.sound(unit, self._stream)))

    def finish(self) -> None:
        """Close the last part, as if the sound ended here; more sound undoes it."""
        self._tail = self._media.sound(self._open, self._stream) if len(self._open) else ()

    def add_frame(self, image: Image, time_s: float) -> None:
        """A live frame comes behind the parts that are closed. Dropped beyond `MAX_FRAMES` and for
        a model without vision."""
        if self._sees and self._frames < MAX_FRAMES:
            self._frames += 1
            self._closed.append((Modality.IMAGE, self._media.picture(image, self._stream)))

    def token_ids(self) -> list[int]:
        return [token for _, ids in self._closed for token in ids] + list(self._tail)

    def heard(self) -> EmbeddedRecognition:
        sure: TokenRuns = tuple(self._closed)
        tail = ((Modality.AUDIO, self._tail),) if self._tail else ()
        return EmbeddedRecognition((*sure, *tail), sure, {})


class PartRecognizer:
    """`headstart.engine.interfaces.SpeechRecognizer` that recognises nothing: the sound goes to the
    server, in parts of two seconds. Wrap it for words that people can read."""

    def __init__(self, media: MediaParts, *, sees: bool) -> None:
        self._media, self._sees = media, sees

    def open(self, stream: Stream) -> PartListening:
        return PartListening(self._media, stream, sees=self._sees)

    def recognize_batch(
        self, utterances: Sequence[PartListening], pcms: Sequence[Pcm]
    ) -> list[EmbeddedRecognition]:
        for utterance, pcm in zip(utterances, pcms, strict=True):
            utterance.hear(pcm)
        return [utterance.heard() for utterance in utterances]

    def finish(self, utterance: PartListening, pcm: Pcm | None = None) -> EmbeddedRecognition:
        if pcm is not None:
            utterance.hear(pcm)
        utterance.finish()
        return utterance.heard()
