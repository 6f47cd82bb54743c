"""What of a GGUF decoder is read before its weights: header, tokenizer and chat format. No torch:
it is read while that is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.process.start_clock import StartClock

Progress = Callable[[str, int, int], None]  # what is loading, done, total (0: unknown)


@dataclass(frozen=True, slots=True)
class Header:
    """An opened file, with what its header says."""

    file: GgufFile
    spec: DecoderSpec
    tokenizer: Tokenizer
    chat: ChatFormat


def read_header(path: Path, report: Progress, clock: StartClock) -> Header:
    """Open and validate the file at `path`; `clock` gets the stages. Raises `BadWeights` or
    `UnsupportedModel`."""
    report("header", 0, 0)
    with clock.stage("decoder header"):
        file = GgufFile(path)
        spec = DecoderSpec.from_gguf(file)
    report("tokenizer", 0, 0)
    with clock.stage("tokenizer"):
        tokenizer = Tokenizer.from_gguf(file)
        chat = ChatFormat.from_gguf(file, tokenizer)
    return Header(file, spec, tokenizer, chat)
