"""engine.asr.silence: silence that is encoded once stands for silence behind every sound."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.engine.asr.mel import LogMel
from headstart.engine.asr.silence import VOWELS_S, FarSilence, vowels
from headstart.engine.asr.whisper.caches import ROOM_STEP, EncodedSound
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import WhisperEncoder
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.engine.asr.whisper.vocabulary import ExactVocabulary

pytestmark = pytest.mark.weights

VOWELS = "d240581f738ebaf2"


def test_the_vowels_are_the_same_everywhere() -> None:
    """Bit by bit, in steps of sixteen bits, and silent at their end: the silence begins there."""
    sound = vowels()
    assert sound.dtype == np.float32
    assert len(sound) == VOWELS_S * 16_000
    assert np.array_equal(sound * 32768, np.rint(sound * 32768))
    assert not sound[-900:].any()
    assert hashlib.sha256((sound * 32768).astype("<i2").tobytes()).hexdigest()[:16] == VOWELS


@pytest.mark.parametrize(("first", "positions"), [(True, 1440), (False, 1470)])
def test_a_sound_shorter_than_the_vowels_hears_none_of_them(
    packed: Checkpoint, first: bool, positions: int
) -> None:
    """It is followed by less silence; alone, silence begins where any sound ends."""
    silence = FarSilence(packed.encoder, packed.decoder, vowels_first=first)
    assert silence.encoded(30).positions == positions
    assert silence.encoded(60).positions == 1440
    with torch.inference_mode():
        short = packed.decoder.listen(torch.zeros(30, packed.settings.width))
    assert silence.behind(short).positions == 30 + positions


@pytest.mark.parametrize(("layers", "first"), [(4, False), (5, True), (6, True)])
def test_deep_encoders_have_vowels_before_the_silence(layers: int, first: bool) -> None:
    """Silence alone up to four layers (tiny), behind vowels above (base has six)."""
    torch.manual_seed(0)
    settings = WhisperSettings(
        mels=80, width=64, heads=2, ffn=96, encoder_layers=layers, decoder_layers=1, vocabulary=9
    )
    encoder = WhisperEncoder(settings)
    decoder = WhisperDecoder(settings, ExactVocabulary(torch.zeros(9, 64)))
    for parameter in (*encoder.parameters(), *decoder.parameters()):
        torch.nn.init.normal_(parameter, std=0.2)
    chosen = FarSilence(encoder, decoder)
    wanted, other = (FarSilence(encoder, decoder, vowels_first=v) for v in (first, not first))
    assert torch.equal(chosen.encoded(500).keys, wanted.encoded(500).keys)
    assert not torch.equal(chosen.encoded(500).keys, other.encoded(500).keys)
    assert chosen.encoded(0).positions == (1440 if first else 1500)


@pytest.mark.parametrize(
    ("kind", "name", "seconds", "first", "share"),
    [
        ("exact", "capital.wav", 10, False, 0.2),
        ("packed", "capital.wav", 10, False, 0.2),
        ("packed", "monologue.ogg", 3, False, 0.15),
        ("packed", "monologue.ogg", 6, False, 0.15),
        ("packed", "monologue.ogg", 3, True, 0.09),
        ("packed", "monologue.ogg", 6, True, 0.1),
    ],
)
def test_a_sound_is_encoded_as_if_padded_to_thirty_seconds(
    kind: str,
    name: str,
    seconds: int,
    first: bool,
    share: float,
    request: pytest.FixtureRequest,
    clip: Callable[[str], npt.NDArray[np.float32]],
) -> None:
    """With two seconds of silence near it and the rest known beforehand, its positions are nearer
    to those in 30 s than when the rest is left out: a small share of the squared difference."""
    checkpoint: Checkpoint = request.getfixturevalue(kind)
    encoder = checkpoint.encoder
    silence = FarSilence(encoder, checkpoint.decoder, vowels_first=first)
    mel = LogMel()
    state = mel.open()
    mel.push(state, torch.from_numpy(clip(name)[: seconds * 16_000]))
    near = mel.features(state, pad_frames=200)
    count = near.shape[1] // 2
    with torch.inference_mode():
        whole = encoder(mel.features(state, pad_frames=3000 - near.shape[1] + 200))
        sound = EncodedSound(near, beyond=silence.encoded(count))
        ours = encoder.encode([sound])[0][0]
        without = encoder(near)
        heard = silence.behind(checkpoint.decoder.listen(ours))
    assert len(whole) == 1500
    speech = count - 100

    def error(rows: torch.Tensor) -> float:
        return float((rows[:speech] - whole[:speech]).square().mean())

    assert error(ours) < share * error(without)
    assert heard.positions == 1500


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["exact", "packed"])
def test_a_growing_sound_has_the_silence_too(
    kind: str,
    first: bool,
    request: pytest.FixtureRequest,
    clip: Callable[[str], npt.NDArray[np.float32]],
) -> None:
    """Positions behind frozen ones attend to both, and give what they give when all are encoded;
    what is frozen is the sound's own, and holds no memory of the silence."""
    checkpoint: Checkpoint = request.getfixturevalue(kind)
    encoder = checkpoint.encoder
    silence = FarSilence(encoder, checkpoint.decoder, vowels_first=first).thinned(4)
    mel = LogMel()
    state = mel.open()
    mel.push(state, torch.from_numpy(clip("capital.wav")))
    features = mel.features(state, pad_frames=100)
    beyond = silence.encoded(features.shape[1] // 2)
    with torch.inference_mode():
        ((rows, frozen),) = encoder.encode([EncodedSound(features, keep=60, beyond=beyond)])
        ((again, kept),) = encoder.encode([EncodedSound(features, frozen, 90, beyond)])
        ((alone, _),) = encoder.encode([EncodedSound(features, keep=60)])
        heard = silence.behind(checkpoint.decoder.listen(rows))
    torch.testing.assert_close(again, rows[60:], atol=2e-3, rtol=1e-3)
    assert not torch.allclose(alone[60:], rows[60:], atol=2e-3, rtol=1e-3)
    assert (frozen.positions, kept.positions) == (60, 90)
    assert torch.equal(kept.keys[:, :, :60], frozen.keys)
    room_bytes = kept.keys.numel() // kept.positions * 4 * ROOM_STEP
    assert kept.keys.untyped_storage().nbytes() <= room_bytes
    assert beyond.positions == -(-(1500 - len(rows)) // 4)
    assert heard.positions == len(rows) + beyond.positions
