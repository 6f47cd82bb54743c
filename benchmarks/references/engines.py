"""transformers and llama.cpp on the same weights, driven as their users would."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headstart.benchmarks.harness.in_process import INSTRUCTIONS, Samples
from headstart.engine.api import SAMPLE_RATE_HZ
from headstart.engine.config import EngineConfig
from headstart.engine.process.assemble import ModelPaths
from headstart.engine.process.load import load_model

WINDOW_S = 30


class TransformersPeer:
    """Whisper by 30 s windows, then one prefill of the whole conversation, fp32, two threads."""

    def __init__(self, paths: ModelPaths) -> None:
        from transformers import AutoModelForCausalLM, WhisperFeatureExtractor

        from headstart.benchmarks.references.offline_whisper import whisper_of

        self._features: Any = WhisperFeatureExtractor()  # type: ignore[no-untyped-call]
        self._whisper = whisper_of(paths.ears)
        ours = load_model(paths.llm, EngineConfig(backend="native", kv_pool_bytes=1 << 24))
        self._chat, self._tokenizer = ours.chat, ours.tokenizer
        self._llm: Any = AutoModelForCausalLM.from_pretrained(
            paths.llm.parent, gguf_file=paths.llm.name, dtype=torch.float32
        )
        self._llm.train(False)

    @torch.inference_mode()
    def first_token(self, sound: Samples) -> float:
        """Seconds from the complete audio to the first token."""
        began_s = time.perf_counter()
        text = self._hear(sound)
        ids = [
            *self._chat.system(INSTRUCTIONS),
            *self._chat.user(text),
            *self._chat.assistant_open,
        ]
        logits = self._llm(torch.tensor([ids]), logits_to_keep=1).logits
        int(logits[0, -1].argmax())
        return time.perf_counter() - began_s

    def _hear(self, sound: Samples) -> str:
        floats = sound.astype(np.float32) / 32768
        texts = []
        for start in range(0, len(floats), WINDOW_S * SAMPLE_RATE_HZ):
            window = floats[start : start + WINDOW_S * SAMPLE_RATE_HZ]
            features = self._features(
                window, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt"
            ).input_features
            texts.append(self._whisper.transcribe(features))
        return " ".join(texts)


class LlamaCppPeer:
    """llama.cpp's own server loop, in this process (xllamacpp), by its own clock.

    It gets the text for free and caches nothing between calls. Tokenising is not counted.
    """

    def __init__(self, module: Any, path: Path, threads: int = 2) -> None:
        settings = module.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel = 4096, 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
        settings.verbosity = 0
        self._server = module.Server(settings)

    @classmethod
    def load(cls, path: Path) -> LlamaCppPeer | None:
        """None when xllamacpp is not installed."""
        try:
            module = importlib.import_module("xllamacpp")
        except ImportError:
            return None
        return cls(module, path)

    def _timings(self, prompt: str | list[int], tokens: int) -> dict[str, float]:
        """Greedy. Raises `RuntimeError` with llama.cpp's message if it refuses."""
        done = self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": tokens,
                "temperature": 0,
                "cache_prompt": False,
                "ignore_eos": True,
            }
        )
        if "timings" not in done:
            raise RuntimeError(f"llama.cpp: {done}")
        timings: dict[str, float] = done["timings"]
        return timings

    def first_token(self, text: str) -> float:
        """Seconds for prefill and the first token."""
        prompt = (
            f"<|im_start|>system\n{INSTRUCTIONS}<|im_end|>\n"
            f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        )
        timings = self._timings(prompt, 1)
        return (timings["prompt_ms"] + timings["predicted_ms"]) / 1000

    def decode_tok_s(self, tokens: int) -> float:
        """Tokens per second of one stream, greedy, from a short prompt."""
        prompt = "Count from one to a hundred in words."
        return self._timings(prompt, tokens)["predicted_per_second"]

    def prefill_tok_s(self, tokens: int) -> float:
        """Tokens per second of one prefill."""
        ids = [1000 + i % 5000 for i in range(tokens)]
        return self._timings(ids, 1)["prompt_per_second"]
