"""The silence that Whisper was trained with behind every sound, up to 30 s, computed once.

Far behind speech, what the encoder makes of silence hardly depends on what was said. So it is
encoded once; the positions of a sound and of the silence near it then attend to it as if it had
been encoded with them. A sound costs what it is long, and is heard as in a window of 30 s.

Silence encoded alone differs from silence behind speech: that nothing was said before it is in all
of its positions, the more so in larger Whispers. `base` (six layers) hears more words right when it
is encoded behind some vowels, `tiny.en` (four) when it is encoded alone (docs/hearing.md).
"""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.asr.mel import SAMPLE_RATE_HZ, LogMel
from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound, Frozen
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import POSITIONS_PER_SECOND, WhisperEncoder
from headstart.engine.asr.whisper.prepared import MadeAnew, Prepared
from headstart.engine.asr.whisper.settings import WhisperSettings

# Formants of a, i, u and e in Hz: where a voice's harmonics are strong, by how many Hz around.
_VOWELS_HZ = ((700, 1200, 2600), (300, 2200, 3000), (400, 800, 2500), (500, 1700, 2500))
_WIDTH_HZ = 100
_PITCH_HZ = 125
_HIGHEST_HZ = 4000
_SYLLABLE_S = 0.3
_VOICED_S = 0.24
_PEAK = 16_000

VOWELS_S = len(_VOWELS_HZ) * _SYLLABLE_S
"""Behind vowels, silence begins here; a shorter sound hears none of what would lie before it."""

_FRAMES_PER_POSITION = 2
_TOP_DECADES = 0.75
"""Log10 power of the loudest band of usual speech. Whisper clamps silence at eight decades below
the loudest; how much below zero that is says how loud the sound is, and tells it little else."""


def vowels() -> npt.NDArray[np.float32]:
    """A few syllables without words, [samples] of 16 kHz in steps of sixteen bits: so they are the
    same where sines are computed otherwise."""
    room, voiced = (round(s * SAMPLE_RATE_HZ) for s in (_SYLLABLE_S, _VOICED_S))
    times_s = np.arange(voiced) / SAMPLE_RATE_HZ
    sound = np.zeros((len(_VOWELS_HZ), room))
    for syllable, formants_hz in zip(sound, _VOWELS_HZ, strict=True):
        for harmonic_hz in range(_PITCH_HZ, _HIGHEST_HZ, _PITCH_HZ):
            far = (np.array(formants_hz) - harmonic_hz) / _WIDTH_HZ
            strength = float((1 / (1 + far * far)).sum())
            syllable[:voiced] += strength * np.sin(2 * np.pi * harmonic_hz * times_s)
        syllable[:voiced] *= np.hanning(voiced)
        syllable *= _PEAK / np.abs(syllable).max()
    return (np.rint(sound.reshape(-1)) / 32768).astype(np.float32)


class FarSilence:
    """Of one Whisper: 30 s, position by position."""

    @torch.inference_mode()
    def __init__(
        self,
        encoder: WhisperEncoder,
        decoder: WhisperDecoder,
        *,
        vowels_first: bool | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        """`vowels_first`: whether the silence is encoded behind vowels, or alone; None: by the
        encoder's depth. `prepared`: where it comes from."""
        self.positions = encoder.settings.audio_positions
        if vowels_first is None:
            vowels_first = encoder.settings.is_deep
        self._begins = round(VOWELS_S * POSITIONS_PER_SECOND) if vowels_first else 0

        def make() -> tuple[Tensor, ...]:
            mels, frames = encoder.settings.mels, self.positions * _FRAMES_PER_POSITION
            if vowels_first:
                features = _padded(LogMel(mels), frames)
            else:
                features = torch.full((mels, frames), (_TOP_DECADES - 8.0 + 4.0) / 4.0)
            ((rows, frozen),) = encoder.encode([EncodedSound(features, keep=self.positions)])
            heard = decoder.listen(rows)
            return frozen.keys, frozen.values, heard.keys, heard.values

        made = (prepared or MadeAnew()).tensors(_shapes(encoder.settings, self.positions), make)
        keys, values, heard_keys, heard_values = made
        self._encoded = Frozen(self.positions, keys, values)
        self._heard = CrossCache(heard_keys, heard_values)
        self._step = 1

    def thinned(self, step: int) -> FarSilence:
        """One position in `step` of it, in the same memory: cheaper to attend to, and nearly as
        good, for its positions differ little."""
        made = copy.copy(self)
        made._step = step
        return made

    def encoded(self, first: int) -> Frozen:
        """Keys and values of the positions from `first` on, in the encoder."""
        far = self._from(first)
        keys, values = self._encoded.keys[:, :, far], self._encoded.values[:, :, far]
        return Frozen(keys.shape[2], keys, values)

    def behind(self, sound: CrossCache) -> CrossCache:
        """`sound` as the decoder hears it, with silence behind it up to 30 s."""
        far = self._from(sound.positions)
        silence = CrossCache(self._heard.keys[:, :, far], self._heard.values[:, :, far])
        return CrossCache(sound.keys, sound.values, silence)

    def _from(self, first: int) -> slice:
        return slice(max(first, self._begins), None, self._step)


def _shapes(settings: WhisperSettings, positions: int) -> dict[str, tuple[int, int, int, int]]:
    """Of what is kept of the silence, by name: in the encoder, and as the decoder hears it."""
    behind = settings.heads, positions, settings.head_width
    layers = {"encoded": settings.encoder_layers, "heard": settings.decoder_layers}
    return {
        f"silence.{what}.{part}": (count, *behind)
        for what, count in layers.items()
        for part in ("keys", "values")
    }


def _padded(mel: LogMel, frames: int) -> Tensor:
    """[mels, `frames`] of the vowels and the silence behind them."""
    state = mel.open()
    mel.push(state, torch.from_numpy(vowels()))
    short = mel.features(state).shape[1]
    return mel.features(state, pad_frames=frames - short)
