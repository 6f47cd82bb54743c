"""Whisper in `transformers`' implementation, on the packaged weights, greedy by 30 s windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.benchmarks.references.transformers_whisper import transformers_whisper
from headstart.engine.asr.languages import AUTO, ENGLISH_CODE, Language
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.checkpoint import TOKENIZER_FILE, load_checkpoint

MAX_TOKENS = 220


class OfflineWhisper:
    """One loaded model; `transcribe` is a plain offline pipeline."""

    def __init__(self, model: Any, tokens: WhisperTokens, language: str = ENGLISH_CODE) -> None:
        self.mels: int = model.config.num_mel_bins
        self._model = model
        self._tokens = tokens
        self._detects = language == AUTO and bool(tokens.languages)
        self._language = tokens.language(ENGLISH_CODE if language == AUTO else language)

    @torch.inference_mode()
    def transcribe(self, features: Tensor) -> str:
        """Text of one padded window [1, mels, 3000]."""
        audio = self._model.model.encoder(features).last_hidden_state
        language = self._detected(audio) if self._detects else self._language
        given = torch.tensor([list(self._tokens.opening((), language))])
        said: list[int] = []
        cache = None
        while len(said) < MAX_TOKENS:
            out = self._model(
                decoder_input_ids=given,
                encoder_outputs=(audio,),
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            token = int(out.logits[0, -1].argmax())
            if token == self._tokens.specials.end:
                break
            said.append(token)
            given = torch.tensor([[token]])
        return self._tokens.text(tuple(said)).strip()

    def _detected(self, audio: Tensor) -> Language:
        start = torch.tensor([[self._tokens.specials.start]])
        logits = self._model(decoder_input_ids=start, encoder_outputs=(audio,)).logits[0, -1]
        return max(self._tokens.languages, key=lambda language: float(logits[language.token]))


def whisper_of(directory: Path, language: str = ENGLISH_CODE) -> OfflineWhisper:
    """The packaged weights in `transformers`' implementation."""
    checkpoint = load_checkpoint(directory, exact=True)
    tokens = WhisperTokens(directory / TOKENIZER_FILE, checkpoint.extras.multilingual)
    model = transformers_whisper(checkpoint)
    model.set_attn_implementation("sdpa")  # nobody asks for its attention: a third less time
    return OfflineWhisper(model, tokens, language)
