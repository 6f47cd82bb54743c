"""Text to token ids and back: byte-level BPE from the lists in a GGUF file.

Our own text, from the chat template, may spell control tokens such as `<|im_end|>`
(`special=True`). Users' text may not: without `special` the same letters are encoded as plain
letters, so that nobody can end their own turn and begin another speaker's.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as BpeTokenizer

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights, UnsupportedModel

# Token types of the GGUF specification.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# The splitting rule that Qwen2's vocabulary was trained with (its published tokenizer.json).
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKS = (".", "?", "!", "...", "\N{HORIZONTAL ELLIPSIS}", "\N{IDEOGRAPHIC FULL STOP}")
BEHIND_MARKS = ("", "\n", "\n\n", '"', ")")
PRE_TOKENIZERS = ("qwen2", "smollm")


def _byte_of_letter() -> dict[str, int]:
    """GPT-2's alphabet for bytes: printable Latin-1 represents itself, the rest is from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return letters


_BYTE_OF_LETTER = _byte_of_letter()


def letter_of_byte() -> list[str]:
    """The letter that represents each of the 256 bytes in a vocabulary."""
    return sorted(_BYTE_OF_LETTER, key=_BYTE_OF_LETTER.__getitem__)


class Tokenizer:
    """Encodes and decodes with one vocabulary.

    `pieces[i]` is the spelling of token i, `kinds[i]` its GGUF token type.
    """

    def __init__(
        self, bpe: BpeTokenizer, pieces: Sequence[str], kinds: Sequence[int], eos: int
    ) -> None:
        self.eos = eos
        self.vocab_size = len(pieces)
        self._bpe = bpe
        self._pieces = pieces
        self.control_ids = frozenset(i for i, kind in enumerate(kinds) if kind == CONTROL)
        self._special_ids = {
            pieces[i]: i for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)
        }
        # Longest first: one special token may begin with another.
        spellings = sorted(self._special_ids, key=len, reverse=True)
        self._special_split = re.compile("(" + "|".join(map(re.escape, spellings)) + ")")

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Tokenizer:
        """Raises `UnsupportedModel` for another kind of vocabulary, `BadWeights` if broken."""
        model = file.require("tokenizer.ggml.model", str)
        if model != "gpt2":
            raise UnsupportedModel(file.path, "tokenizer", ["gpt2"], model)
        pre = file.require("tokenizer.ggml.pre", str)
        if pre not in PRE_TOKENIZERS:
            raise UnsupportedModel(file.path, "tokenizer.ggml.pre", PRE_TOKENIZERS, pre)
        pieces = file.require("tokenizer.ggml.tokens", list)
        kinds = file.require("tokenizer.ggml.token_type", list)
        if len(kinds) != len(pieces):
            raise BadWeights(file.path, "token types", f"{len(pieces)}", f"{len(kinds)}")
        eos = file.require("tokenizer.ggml.eos_token_id", int)
        if not 0 <= eos < len(pieces):
            raise BadWeights(file.path, "eos token", f"below {len(pieces)}", str(eos))
        # Special tokens are left out of the BPE vocabulary, so plain text cannot produce them.
        vocab = {
            piece: i
            for i, (piece, kind) in enumerate(zip(pieces, kinds, strict=True))
            if kind in (NORMAL, BYTE)
        }
        bpe = BpeTokenizer(_model(file, vocab))
        _set_rules(bpe, pre)
        return cls(bpe, pieces, kinds, eos)

    @classmethod
    def from_json(cls, path: Path, eos: str) -> Tokenizer:
        """From a tokenizer.json whose model is byte-level BPE. `eos`: spelling of the
        end-of-sequence token. Raises `UnsupportedModel` or `BadWeights`."""
        try:
            content = json.loads(path.read_bytes())
            kind = content["model"]["type"]
            if kind != "BPE":
                raise UnsupportedModel(path, "tokenizer", ["BPE"], kind)
            added = {t["id"]: t for t in content["added_tokens"]}
            # Added tokens are left out, so plain text cannot produce them.
            plain = {**content, "added_tokens": [], "post_processor": None}
            bpe = BpeTokenizer.from_str(json.dumps(plain))
            spelled = {i: t for t, i in content["model"]["vocab"].items()}
            spelled |= {i: token["content"] for i, token in added.items()}
        except FileNotFoundError as error:
            raise BadWeights(path, "file", "a file", "none") from error
        except (ValueError, KeyError, TypeError) as error:
            raise BadWeights(path, "content", "a tokenizer", repr(error)) from error
        pieces = [spelled.get(i, "") for i in range(max(spelled) + 1)]
        kinds = [NORMAL] * len(pieces)
        for i, token in added.items():
            kinds[i] = CONTROL if token.get("special") else USER_DEFINED
        if eos not in pieces:
            raise BadWeights(path, "eos token", "one of the vocabulary", repr(eos))
        return cls(bpe, pieces, kinds, pieces.index(eos))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; control tokens only if `special`, for trusted text."""
        if not special:
            return list(self._bpe.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        for index, part in enumerate(self._special_split.split(text)):
            if index % 2:  # the split puts matches at odd indices
                ids.append(self._special_ids[part])
            elif part:
                ids.extend(self._bpe.encode(part, add_special_tokens=False).ids)
        return ids

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of `token`; none for control tokens unless `special`."""
        if token >= len(self._pieces):
            return b""  # a model's vocabulary may be padded beyond its tokenizer's
        piece = self._pieces[token]
        if token in self.control_ids:
            return piece.encode() if special else b""
        if piece in self._special_ids:
            return piece.encode()
        # Padding tokens may hold letters outside the byte alphabet.
        return bytes(_BYTE_OF_LETTER[c] for c in piece if c in _BYTE_OF_LETTER)

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of `tokens`; invalid UTF-8 becomes U+FFFD."""
        spelled = b"".join(self.token_bytes(token, special=special) for token in tokens)
        return spelled.decode("utf-8", errors="replace")

    def mark_tokens(self) -> frozenset[int]:
        """The single tokens of marks that end a sentence, with a quote or line ends behind them."""
        spelled = (mark + rest for mark in MARKS for rest in BEHIND_MARKS)
        encoded = (self.encode(text) for text in spelled)
        return frozenset(ids[0] for ids in encoded if len(ids) == 1)

    def stream_decoder(self) -> StreamingDecoder:
        return StreamingDecoder(self)


class StreamingDecoder:
    """Decodes token by token; an incomplete character is held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The text that `token` completes, which may be empty."""
        return self._utf8.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """The rest: U+FFFD for a character that was never completed."""
        return self._utf8.decode(b"", final=True)


def _model(file: GgufFile, vocab: dict[str, int]) -> models.BPE:
    """Raises `BadWeights` for a merge that is not one of the vocabulary."""
    listed = file.require("tokenizer.ggml.merges", list)
    merges = [tuple(merge.split(" ", 1)) for merge in listed]
    try:
        return models.BPE(vocab, merges, fuse_unk=False)
    except Exception as error:  # as the library raises it, which does not say which merge it is
        for merge in listed:
            left, _, right = merge.partition(" ")
            if left not in vocab or right not in vocab or left + right not in vocab:
                expected = "three tokens of the vocabulary"
                raise BadWeights(file.path, "a merge", expected, repr(merge)) from error
        raise


def _set_rules(bpe: BpeTokenizer, pre: str) -> None:
    """Set normaliser and pre-tokeniser by the file's name for them (one of `PRE_TOKENIZERS`)."""
    if pre == "qwen2":
        bpe.normalizer = normalizers.NFC()
        split: pre_tokenizers.PreTokenizer = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        split = pre_tokenizers.Digits(individual_digits=True)
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
