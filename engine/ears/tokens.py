"""Whisper's vocabulary: special tokens, text, and where words begin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from engine.errors import BadWeights

# How byte-level vocabularies write a space.
_SPACE = "Ġ"


@dataclass(frozen=True)
class Specials:
    """Ids of the tokens that steer the decoder. `no_speech` is the model's own silence detector."""

    end: int
    start: int
    previous: int
    no_speech: int
    no_timestamps: int
    language: int | None  # None: an English-only model
    transcribe: int | None


class WhisperTokens:
    """Text to ids and back."""

    def __init__(self, path: Path, multilingual: bool, language: str = "en") -> None:
        """`path`: tokenizer.json. Raises `BadWeights`, also for a language it does not know."""
        self._path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise BadWeights(path, "content", "a tokenizer", str(error)) from error
        self.specials = Specials(
            end=self._special("<|endoftext|>"),
            start=self._special("<|startoftranscript|>"),
            previous=self._special("<|startofprev|>"),
            no_speech=self._special("<|nospeech|>", "<|nocaptions|>"),
            no_timestamps=self._special("<|notimestamps|>"),
            language=self._special(f"<|{language}|>") if multilingual else None,
            transcribe=self._special("<|transcribe|>") if multilingual else None,
        )

    def opening(self, prompt: tuple[int, ...] = ()) -> tuple[int, ...]:
        """What the decoder is given before the words; `prompt`: tokens of what was said before."""
        special = self.specials
        steer = (special.start, special.language, special.transcribe, special.no_timestamps)
        before = (special.previous, *prompt) if prompt else ()
        return before + tuple(token for token in steer if token is not None)

    def text(self, tokens: tuple[int, ...]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def lower_case(self) -> tuple[int, ...]:
        """All tokens that begin with a lower-case letter, a space before it or not."""
        return tuple(
            token
            for text, token in self._tokenizer.get_vocab(with_added_tokens=False).items()
            if text.removeprefix(_SPACE)[:1].islower()
        )

    def words(self, tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Tokens grouped into words: a new one begins with a space."""
        groups: list[list[int]] = []
        for token in tokens:
            if not groups or self.text((token,)).startswith(" "):
                groups.append([])
            groups[-1].append(token)
        return [tuple(group) for group in groups]

    def _special(self, *names: str) -> int:
        for name in names:
            found = self._tokenizer.token_to_id(name)
            if found is not None:
                return int(found)
        raise BadWeights(self._path, "special tokens", " or ".join(names), "none")
