"""A model's encoders as recogniser and image encoder (`headstart.engine.interfaces`)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch

from headstart.engine.api import Image
from headstart.engine.interfaces import EmbeddedRecognition, Pcm, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.clips import (
    ClipEncoder,
    PictureFeatures,
    encode_pictures,
    intern_picture,
)
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame

# Maximum frames of one clip: a minute at two per second.
MAX_FRAMES = 120


class Listening(ClipEncoder):
    """An open utterance (`headstart.engine.interfaces.LiveFrameEncoder`)."""

    frames = 0
    domain = b""

    def add_frame(self, image: Image, time_s: float) -> None:
        """Take a live frame with its time from the utterance's start. Dropped beyond `MAX_FRAMES`
        and by a model without vision."""
        if self._frames is None or self.frames == MAX_FRAMES:
            return
        self.frames += 1
        self.see([_frame(image, time_s, self.domain)])

    def token_ids(self) -> list[int]:
        shots = [token for shot in (*self._units, *self._last_units) for token in shot.ids]
        return [*self._committed, *self._provisional, *self._last_sound, *shots]


class ModelRecognizer:
    """An `engine.interfaces.SpeechRecognizer` that gives embeddings as tokens, and no words."""

    def __init__(self, model: StreamModel, tail: TailPolicy) -> None:
        self._model, self._tail = model, tail

    def open(self, stream: Stream) -> Listening:
        """Raises `UnsupportedInput` if the model cannot hear."""
        listening = Listening(self._model, stream.soft, self._tail)
        listening.domain = stream.share_domain
        return listening

    def recognize_batch(
        self, utterances: Sequence[Listening], pcms: Sequence[Pcm]
    ) -> list[EmbeddedRecognition]:
        """Runs one after the other: an encoder's windows are large enough to fill the cores."""
        began_s = time.monotonic()
        for utterance, pcm in zip(utterances, pcms, strict=True):
            _feed(utterance, pcm)
        took_ms = (time.monotonic() - began_s) * 1e3
        return [_heard(utterance, took_ms) for utterance in utterances]

    def finish(self, utterance: Listening, pcm: Pcm | None = None) -> EmbeddedRecognition:
        """The clip as if it ended here, behind `pcm`; further input undoes it."""
        began_s = time.monotonic()
        if pcm is not None:
            _feed(utterance, pcm)
        utterance.finish()
        return _heard(utterance, (time.monotonic() - began_s) * 1e3)


def _feed(utterance: Listening, pcm: Pcm) -> None:
    utterance.feed(torch.from_numpy(np.ascontiguousarray(pcm)))


def _heard(utterance: Listening, took_ms: float) -> EmbeddedRecognition:
    return EmbeddedRecognition(
        utterance.parts(), utterance.parts(TailPolicy.CLOSED), {"mel": 0.0, "encode": took_ms}
    )


class ModelImageEncoder:
    """`headstart.engine.interfaces.ImageEncoder` with the model's own delimiters, in two parts
    (`headstart.engine.process.encoder_thread.SplitEncoder`)."""

    def __init__(self, model: StreamModel, stills: StreamModel | None = None) -> None:
        """`stills`: what encodes stills, if not `model` (which may pool its frames)."""
        self._model, self._stills = model, stills or model

    def encode_image(self, image: Image, stream: Stream, *, live: bool = False) -> View:
        """Raises `UnsupportedInput` if the model cannot see."""
        (features,) = self.features([image], [stream.share_domain], live=live)
        return self.view(features, image, stream)

    def takes_frames(self) -> bool:
        """Frames of a model that hears too belong to its clips (`Listening`)."""
        return self._model.spec.audio is None

    def size(self, image: Image, *, live: bool) -> tuple[int, tuple[int, int]]:
        """About how many tokens a picture takes, and what pictures can be stacked with it."""
        seen = self._model.spec.vision
        if seen is None:
            return 1, (0, 0)
        pixels = max(image.width * image.height, 1)
        if live or seen.tiled is None:
            scale = math.sqrt(min(max(pixels, seen.min_pixels), seen.max_pixels) / pixels)
            sides = (image.width, image.height)
            tokens = math.prod(math.ceil(side * scale / seen.side_px) for side in sides)
        else:
            cells = min(pixels, seen.tiled.max_pixels) // seen.tiled.cell_pixels
            tokens = cells * seen.tiled.cell_tokens + seen.tiled.fixed_tokens
        return max(tokens, 1), (image.width, image.height)

    def features(
        self, images: Sequence[Image], domains: Sequence[bytes], *, live: bool
    ) -> list[PictureFeatures]:
        """Raises `UnsupportedInput` if the model cannot see."""
        shown = zip(images, domains, strict=True)
        frames = [_frame(image, 0.0, domain) for image, domain in shown]
        return encode_pictures(self._model if live else self._stills, frames, live=live)

    def view(self, features: PictureFeatures, image: Image, stream: Stream) -> View:
        seen = intern_picture(self._model, stream.soft, features)
        ids = tuple(token for _, part in self._model.layout.image(seen) for token in part)
        digest = blake2b(image.rgb, digest_size=8).hexdigest()
        key = f"{digest} {image.max_tokens}" if image.max_tokens else digest
        return View(ids, f"picture {image.width} x {image.height}", key=key)


def _frame(image: Image, time_s: float, domain: bytes) -> VideoFrame:
    rgb = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)
    return VideoFrame(rgb, time_s, image.max_tokens, domain)
