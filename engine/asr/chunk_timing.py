"""What a chunk of speech takes a loaded Whisper on this machine, without any speech.

The work of a chunk hardly depends on what is said: so many positions go through the encoder, so
many tokens through the decoder. The sound here is noise, and tokens are read, not chosen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound, Frozen, Text
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.encoder import POSITIONS_PER_SECOND

# A chunk in the middle of an utterance: sound that is frozen, and sound and silence that are
# encoded with each chunk besides the chunk itself (`RecognizerSettings`: look_ahead_s, pad_s).
FROZEN_S = 4.0
ANEW_S = 2.5
# Of the decoder, as counted on a recorded monologue: one pass over what is known or likely, and one
# for each word behind the first difference.
DRAFT_ROWS = 9
MORE_PASSES = 3
MORE_ROWS = 1

REPEATS = 3
# Times the limit: one chunk that takes longer answers the question.
HOPELESS = 3.0

_FRAMES_PER_POSITION = 2


class ChunkTimer:
    """Over one checkpoint. `clock` gives seconds; `together`: chunks of so many utterances in one
    pass."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        chunk_ms: int,
        clock: Callable[[], float] = time.perf_counter,
        together: int = 1,
    ) -> None:
        self._checkpoint, self._clock, self._together = checkpoint, clock, together
        old, anew_s = int(FROZEN_S * POSITIONS_PER_SECOND), chunk_ms / 1000 + ANEW_S
        self._old = old
        positions = old + int(anew_s * POSITIONS_PER_SECOND)
        noise = torch.Generator().manual_seed(0)
        shape = (checkpoint.settings.mels, positions * _FRAMES_PER_POSITION)
        self._features = torch.randn(shape, generator=noise) * 0.1

    @torch.inference_mode()
    def median_ms(self, limit_ms: float) -> float:
        """Of a few chunks, or of those up to one that took far more than `limit_ms`."""
        with self._checkpoint.working():
            return self._median_ms(limit_ms)

    def _median_ms(self, limit_ms: float) -> float:
        rows, frozen = self._checkpoint.encoder.encode(
            [EncodedSound(self._features, keep=self._old)]
        )[0]
        known = self._checkpoint.decoder.listen(rows).first(frozen.positions)
        took_ms: list[float] = []
        for _ in range(REPEATS):
            began_s = self._clock()
            self._chunk(frozen, known)
            took_ms.append((self._clock() - began_s) * 1000)
            if took_ms[-1] > HOPELESS * limit_ms:
                break
        return statistics.median(took_ms)

    def _chunk(self, frozen: Frozen, known: CrossCache) -> None:
        checkpoint = self._checkpoint
        count = self._together
        sound = EncodedSound(self._features, frozen, self._old)
        encoded = checkpoint.encoder.encode([sound] * count)
        heard = checkpoint.decoder.listen_many([rows for rows, _ in encoded], [known] * count)
        caches = [checkpoint.decoder.text_cache() for _ in heard]
        for rows in (DRAFT_ROWS, *[MORE_ROWS] * MORE_PASSES):
            texts = [
                Text(torch.arange(rows), cache, sound, checkpoint.extras.alignment_heads)
                for cache, sound in zip(caches, heard, strict=True)
            ]
            hidden = checkpoint.decoder.read(texts)
            logits = checkpoint.decoder.vocabulary.logits(torch.cat(hidden))
        logits[0, :1].tolist()  # from a GPU: until all is computed
