"""The native layers against our own torch modules with the same packed matrices."""

from __future__ import annotations

from dataclasses import replace

import torch

from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound, Text, TextCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import WhisperEncoder
from headstart.engine.asr.whisper.packed_layers import have_native_sizes


def both_ways(part: WhisperEncoder | WhisperDecoder, run: object) -> list[torch.Tensor]:
    """What `run` gives with the native layers and with torch's."""
    assert callable(run)
    packed = part.packed
    assert packed is not None
    native = run()
    part.packed = None
    try:
        return [native, run()]
    finally:
        part.packed = packed


@torch.inference_mode()
def test_the_encoder_is_the_same_both_ways(recognizer: WhisperRecognizer) -> None:
    """A sound in two pieces, the first frozen: within the noise of quantised activations."""
    encoder = recognizer._encoder
    features = torch.randn(80, 240, generator=torch.Generator().manual_seed(0))

    def run() -> torch.Tensor:
        _, frozen = encoder.encode([EncodedSound(features[:, :200], keep=60)])[0]
        rows, kept = encoder.encode([EncodedSound(features, frozen, keep=90)])[0]
        assert kept.keys.shape[2] == kept.positions == 90
        return rows

    native, torchs = both_ways(encoder, run)
    assert native.shape == (60, encoder.settings.width)
    assert (native - torchs).norm() < 0.02 * torchs.norm()


@torch.inference_mode()
def test_the_decoder_is_the_same_both_ways(recognizer: WhisperRecognizer) -> None:
    """Hidden rows and where the watched heads look, in two passes behind each other."""
    decoder = recognizer._decoder
    audio = torch.randn(50, decoder.settings.width, generator=torch.Generator().manual_seed(0))
    sound: CrossCache = decoder.listen(audio)
    watched = ((2, 1), (3, 5))

    def run() -> torch.Tensor:
        cache = TextCache(decoder.settings)
        first = Text(torch.tensor([50257, 50362, 464]), cache, sound, watched)
        decoder.read([first])
        second = Text(torch.tensor([3139]), cache, sound, watched)
        (hidden,) = decoder.read([second])
        return torch.cat((hidden.flatten(), first.attention.flatten(), second.attention.flatten()))

    native, torchs = both_ways(decoder, run)
    assert (native - torchs).norm() < 0.02 * torchs.norm()


def test_odd_heads_stay_with_torch(exact: Checkpoint) -> None:
    """A head's width that the kernel does not have is no error: those layers run in torch."""
    assert have_native_sizes(exact.settings)
    assert not have_native_sizes(replace(exact.settings, width=384, heads=32))
    assert not have_native_sizes(replace(exact.settings, width=384, heads=2))
