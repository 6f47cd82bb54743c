"""`python -m tests.engine.asr.heard_bits`: what the recogniser makes of one recording, bit by bit.

One JSON object: a digest of each stage's numbers, and the words with their probabilities, chunk by
chunk, at several chunk sizes. Run in processes of their own by `test_every_processor`, under the
settings that choose other instructions.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.benchmarks.inputs.recordings import load_s16
from headstart.engine.asr.mel import LogMel
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.caches import EncodedSound, Text, TextCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.weights import ensure

RECORDING = Path(__file__).parents[2] / "data" / "captured" / "question-by-webrtc.wav"
CHUNKS_MS = (400, 500, 700)
_TOKENS = (50257, 50362, 2061, 318, 262, 3139, 286)


def digest(tensor: Tensor) -> str:
    """Of all bits, in order; zero is zero, whatever its sign."""
    return hashlib.sha256((tensor + 0.0).contiguous().numpy().tobytes()).hexdigest()[:16]


@torch.inference_mode()
def stages(checkpoint: Checkpoint, samples: Tensor) -> dict[str, str]:
    """Digests of features, encoded positions, keys of the sound, hidden rows, attention, logits."""
    mel = LogMel(checkpoint.settings.mels)
    state = mel.open()
    mel.push(state, samples)
    features = mel.features(state, pad_frames=100)
    ((early, frozen),) = checkpoint.encoder.encode([EncodedSound(features[:, :200], keep=60)])
    ((rows, kept),) = checkpoint.encoder.encode([EncodedSound(features, frozen, keep=90)])
    heard = checkpoint.decoder.listen(torch.cat((early[:60], rows)))
    watched = checkpoint.extras.alignment_heads
    text = Text(torch.tensor(_TOKENS), TextCache(checkpoint.settings), heard, watched)
    (hidden,) = checkpoint.decoder.read([text])
    logits = checkpoint.decoder.vocabulary.logits(hidden)
    numbers = {
        "features": features,
        "encoded": rows,
        "frozen": kept.keys,
        "heard": heard.values,
        "hidden": hidden,
        "attention": text.attention,
        "logits": logits,
    }
    return {name: digest(tensor) for name, tensor in numbers.items()}


def words(recognizer: WhisperRecognizer, samples: npt.NDArray[np.float32]) -> dict[str, object]:
    """For each chunk size, what was said after each chunk and at the end, with probabilities."""
    said: dict[str, object] = {}
    for chunk_ms in CHUNKS_MS:
        utterance, step = recognizer.open(), chunk_ms * 16
        heard = [
            recognizer.recognize(utterance, samples[i : i + step])
            for i in range(0, len(samples), step)
        ]
        heard.append(recognizer.finish(utterance))
        said[str(chunk_ms)] = [(h.committed, h.tentative, h.likely) for h in heard]
    return said


def main() -> None:
    """Print it."""
    torch.set_num_threads(1)
    directory = ensure("whisper-tiny.en")
    samples = load_s16(RECORDING, 16_000).astype(np.float32) * np.float32(2**-15)
    result = {
        "stages": stages(load_checkpoint(directory), torch.from_numpy(samples)),
        "words": words(WhisperRecognizer.load(directory), samples),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
