"""A Whisper on a device: its weights and all it keeps of utterances there, on a CUDA stream of its
own, in fp16.

The rules of recognition (`engine.asr`) are those of the C kernels: these are `WhisperEncoder`,
`WhisperDecoder` and `Vocabulary`, with their layers in plain torch (`asr.whisper.torch_layers`).
The log-mel spectrogram is the host's. What comes back are tokens, their log-probabilities, and
where they were heard, of all utterances of a pass at once. Never run on a GPU yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.asr.whisper.caches import (
    CrossCache,
    EncodedSound,
    Frozen,
    Pair,
    Text,
    TextCache,
)
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import WhisperEncoder
from headstart.engine.asr.whisper.pieces import Pieces, drain
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.engine.asr.whisper.torch_layers import HeardTogether, filled_up, onto
from headstart.engine.asr.whisper.vocabulary import ExactVocabulary, Vocabulary
from headstart.engine.device.encoders import EncoderStream
from headstart.engine.device.operations import TorchOperations
from headstart.engine.device.place import Place
from headstart.engine.errors import DeviceFull

Item = TypeVar("Item")
Made = TypeVar("Made")
Network = TypeVar("Network", WhisperEncoder, WhisperDecoder)

DTYPE = torch.float16
"""Whisper's own: it was published, and is mostly run, in fp16, which has three bits more than bf16.
"""
_ROWS = (nn.Linear, nn.Conv1d)


def whisper_place(device: torch.device, dtype: torch.dtype = DTYPE) -> Place:
    """Where a Whisper runs: without Triton, which it does not need."""
    return Place(device, dtype, TorchOperations())


def placed(checkpoint: Checkpoint, place: Place) -> Checkpoint:
    """An exact (fp32) checkpoint's Whisper at `place`, whose type its matrices take. Raises
    `torch.OutOfMemoryError`."""
    settings, exact = checkpoint.settings, checkpoint.decoder.vocabulary
    assert isinstance(exact, ExactVocabulary)
    head = None if exact.head is None else exact.head.to(place.device, place.dtype)
    embedding = exact.weight.to(place.device, place.dtype)
    vocabulary = PlacedVocabulary(embedding, head, place)
    with torch.device("meta"):
        encoder = PlacedEncoder(settings)
        decoder = PlacedDecoder(settings, vocabulary, place)
    _fill(encoder, checkpoint.encoder, place)
    _fill(decoder, checkpoint.decoder, place)
    return replace(checkpoint, encoder=encoder, decoder=decoder, working=_Working(place))


def _fill(to: Network, source: Network, place: Place) -> None:
    """Matrices and convolutions in the place's type; norms and positions, which are added to the
    sum through the layers, in its wide one."""
    narrow = {
        f"{name}.{part}"
        for name, module in source.named_modules()
        if isinstance(module, _ROWS)
        for part in ("weight", "bias")
    }
    state = {
        name: tensor.to(place.device, place.dtype if name in narrow else place.wide)
        for name, tensor in source.state_dict().items()
    }
    to.load_state_dict(state, assign=True)
    to.eval().requires_grad_(False)


class _Working:
    """Within it this is the current device, and the stream is the recogniser's own."""

    def __init__(self, place: Place) -> None:
        self._place, self._stream = place, EncoderStream(place)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Raises `DeviceFull`."""
        with self._place.current(), self._stream.current():
            try:
                yield
            except torch.OutOfMemoryError:
                raise DeviceFull(str(self._place.device)) from None


def in_parts(work: Callable[[Sequence[Item]], list[Made]], items: Sequence[Item]) -> list[Made]:
    """What `work` makes of `items`; where a GPU has no room for all of them at once, of one half
    after the other. Raises `torch.OutOfMemoryError` where there is none for a single one."""
    try:
        return work(items)
    except torch.OutOfMemoryError:
        if len(items) < 2:
            raise
    torch.cuda.empty_cache()
    half = len(items) // 2
    return [*in_parts(work, items[:half]), *in_parts(work, items[half:])]


class PlacedEncoder(WhisperEncoder):
    """`WhisperEncoder` on a device. Its results are there."""

    def encode_in_pieces(
        self, sounds: Sequence[EncodedSound]
    ) -> Pieces[list[tuple[Tensor, Frozen]]]:
        """`encode` in one piece."""
        at_once = super().encode_in_pieces
        yield from ()
        return in_parts(lambda some: drain(at_once(some)), sounds)

    def _fronts(self, sounds: Sequence[EncodedSound]) -> list[Tensor]:
        """All convolutions of a batch in one: zeros stand for what is behind a sound's end."""
        counts = [sound.features.shape[1] - 2 * sound.frozen.positions for sound in sounds]
        places = [
            self._places(sound.frozen.positions, -(-count // 2))
            for sound, count in zip(sounds, counts, strict=True)
        ]
        frames = filled_up([_with_edges(sound) for sound in sounds], dim=1)
        device, dtype = self.conv1.weight.device, self.conv1.weight.dtype
        x = F.gelu(F.conv1d(onto(frames.to(dtype), device), self.conv1.weight, self.conv1.bias))
        # Where there is no sound there are zeros, not the convolution's response to them.
        first = torch.tensor([int(not sound.frozen.positions) for sound in sounds])[:, None]
        at = torch.arange(x.shape[2])
        is_sound = (at >= first) & (at <= torch.tensor(counts)[:, None])
        x = x * onto(is_sound[:, None], device)
        x = F.pad(x, (0, 1))
        x = F.gelu(F.conv1d(x, self.conv2.weight, self.conv2.bias, stride=2)).transpose(1, 2)
        return [
            part[: place.stop - place.start] + self.positions[place]
            for part, place in zip(x, places, strict=True)
        ]

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed


def _with_edges(sound: EncodedSound) -> Tensor:
    """Frames [mels, T] that are not frozen, behind the two before them or zeros; then a zero."""
    first = sound.frozen.positions
    if not first:
        return F.pad(sound.features, (2, 1))
    return F.pad(sound.features[:, 2 * first - 2 :], (0, 1))


class PlacedDecoder(WhisperDecoder):
    """`WhisperDecoder` on a device: caches and results are there."""

    def __init__(self, settings: WhisperSettings, vocabulary: Vocabulary, place: Place) -> None:
        super().__init__(settings, vocabulary)
        self._place = place
        self._together: tuple[dict[int, int], list[weakref.ref[CrossCache]], HeardTogether] | None
        self._together = None

    def text_cache(self) -> TextCache:
        return TextCache(self.settings, self._place.device, self._place.dtype)

    def listen_many(
        self, audios: Sequence[Tensor], known: Sequence[CrossCache | None]
    ) -> list[CrossCache]:
        def listen(pairs: Sequence[tuple[Tensor, CrossCache | None]]) -> list[CrossCache]:
            return super(PlacedDecoder, self).listen_many(*zip(*pairs, strict=True))

        return in_parts(listen, list(zip(audios, known, strict=True)))

    def read(self, texts: Sequence[Text]) -> list[Tensor]:
        return in_parts(super().read, texts)

    def _memory(self, shape: tuple[int, ...]) -> Pair:
        device, dtype = self._place.device, self._place.dtype
        return (
            torch.empty(shape, device=device, dtype=dtype),
            torch.empty(shape, device=device, dtype=dtype),
        )

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed

    def _heard(self, sounds: Sequence[CrossCache]) -> HeardTogether:
        """As they were brought together for the pass before, if they were: many passes are over the
        same sounds, or over fewer of them."""
        if self._together is not None:
            rows, known, heard = self._together
            places = [rows.get(id(sound)) for sound in sounds]
            if all(
                place is not None and known[place]() is sound
                for place, sound in zip(places, sounds, strict=True)
            ):
                return heard.at([place for place in places if place is not None])
        self._together = None  # first: both would need the memory of both
        own = list({id(sound): sound for sound in sounds}.values())
        rows = {id(sound): place for place, sound in enumerate(own)}
        heard = HeardTogether.of(own)
        if len(own) > 1 or own[0].beyond is not None:  # else it is a view
            self._together = rows, [weakref.ref(sound) for sound in own], heard
        return heard.at([rows[id(sound)] for sound in sounds])


class PlacedVocabulary(Vocabulary):
    """`Vocabulary` on a device. What is made of logits comes to the host in one piece."""

    def __init__(self, weight: Tensor, head: Tensor | None, place: Place) -> None:
        """`weight`, `head`: as of `ExactVocabulary`, at `place`."""
        self._weight, self._place = weight, place
        self._head = weight if head is None else head

    def embed(self, tokens: Tensor) -> Tensor:
        return self._weight.index_select(0, tokens).to(self._place.wide)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden.to(self._place.dtype), self._head).to(self._place.wide)

    def table(self, added: Tensor) -> Tensor:
        return onto(added, self._place.device).to(self._place.wide)

    def best(
        self, hidden: Tensor, added: Tensor, which: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        logits = self.logits(hidden) + added[onto(torch.tensor(which), self._place.device)]
        tokens = logits.argmax(dim=-1)
        scores = logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        # fp64 holds every token's number and every fp32.
        both: list[list[float]] = torch.stack((tokens.double(), scores.double())).tolist()
        return [int(token) for token in both[0]], both[1]

    def probability(self, hidden: Tensor, token: int) -> list[float]:
        found: list[float] = self.logits(hidden).softmax(dim=-1)[:, token].tolist()
        return found
