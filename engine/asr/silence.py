"""The silence that Whisper was trained with behind every sound, up to 30 s, computed once.

Far behind a sound, what the encoder makes of silence hardly depends on the sound. So it is encoded
once, alone; the positions of a sound and of the silence near it then attend to it as if it had been
encoded with them. A sound costs what it is long, and is heard as in a window of 30 s.
"""

from __future__ import annotations

import copy

import torch

from headstart.engine.asr.whisper.decoder import CrossCache, WhisperDecoder
from headstart.engine.asr.whisper.encoder import EncodedSound, Frozen, WhisperEncoder

TOP_DECADES = 0.75
"""Log10 power of the loudest band of usual speech. Whisper clamps silence at eight decades below
the loudest; how much below zero that is says how loud the sound is, and tells it little else."""

_FRAMES_PER_POSITION = 2


class FarSilence:
    """Of one Whisper: 30 s, position by position."""

    @torch.inference_mode()
    def __init__(self, encoder: WhisperEncoder, decoder: WhisperDecoder) -> None:
        self.positions = encoder.settings.audio_positions
        shape = (encoder.settings.mels, self.positions * _FRAMES_PER_POSITION)
        features = torch.full(shape, (TOP_DECADES - 8.0 + 4.0) / 4.0)
        ((rows, frozen),) = encoder.encode([EncodedSound(features, keep=self.positions)])
        self._encoded = frozen
        self._heard = decoder.listen(rows)
        self._step = 1

    def thinned(self, step: int) -> FarSilence:
        """One position in `step` of it, in the same memory: cheaper to attend to, and nearly as
        good, for its positions differ little."""
        made = copy.copy(self)
        made._step = step
        return made

    def encoded(self, first: int) -> Frozen:
        """Keys and values of the positions from `first` on, in the encoder."""
        far = slice(first, None, self._step)
        keys, values = self._encoded.keys[:, :, far], self._encoded.values[:, :, far]
        return Frozen(keys.shape[2], keys, values)

    def behind(self, sound: CrossCache) -> CrossCache:
        """`sound` as the decoder hears it, with silence behind it up to 30 s."""
        far = slice(sound.positions, None, self._step)
        return CrossCache(
            torch.cat((sound.keys, self._heard.keys[:, :, far]), dim=2),
            torch.cat((sound.values, self._heard.values[:, :, far]), dim=2),
        )
