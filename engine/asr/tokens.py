"""Whisper's vocabulary: special tokens, languages, text, and where words begin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from headstart.engine.asr.errors import EnglishOnly, UnknownLanguage
from headstart.engine.asr.languages import ENGLISH_CODE, Language
from headstart.engine.errors import BadWeights

_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_UNFINISHED = "\ufffd"  # what part of a character reads as
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
    transcribe: int | None  # None: an English-only model


class WhisperTokens:
    """Text to ids and back."""

    def __init__(self, path: Path, multilingual: bool) -> None:
        """`path`: tokenizer.json. Raises `BadWeights`."""
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
            transcribe=self._special("<|transcribe|>") if multilingual else None,
        )
        self.languages = self._languages() if multilingual else ()
        """All that may be asked for; none in an English-only model."""

    def language(self, code: str) -> Language:
        """Raises `EnglishOnly` or `UnknownLanguage`."""
        if not self.languages:
            if code != ENGLISH_CODE:
                raise EnglishOnly(code)
            return Language(code)
        for language in self.languages:
            if language.code == code:
                return language
        raise UnknownLanguage(code, [language.code for language in self.languages])

    def check(self, vocabulary: int, ids: Mapping[str, int]) -> None:
        """Whether it goes with a model of that many tokens, whose special ones have those `ids`.

        Raises `BadWeights`.
        """
        largest = max(self._tokenizer.get_vocab().values())
        if largest >= vocabulary:
            few = f"ids below the model's {vocabulary}"
            raise BadWeights(self._path, "tokens", few, f"ids up to {largest}")
        for name, wanted in ids.items():
            found = self._tokenizer.token_to_id(name)
            if found is not None and found != wanted:
                raise BadWeights(self._path, name, f"{wanted}, as in the model", str(found))

    def opening(self, prompt: tuple[int, ...], language: Language) -> tuple[int, ...]:
        """What the decoder is given before the words; `prompt`: tokens of what was said before."""
        special = self.specials
        steer = (special.start, language.token, special.transcribe, special.no_timestamps)
        before = (special.previous, *prompt) if prompt else ()
        return before + tuple(token for token in steer if token is not None)

    def spells(self, token: int) -> bool:
        """Whether there is a letter or a digit in it; half a letter counts as none."""
        return any(letter.isalnum() for letter in self.text((token,)))

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

    def words(self, tokens: tuple[int, ...], language: Language) -> list[tuple[int, ...]]:
        """Tokens grouped into words: a new one begins with a space, or, where the language has
        none, wherever a character does."""
        groups: list[list[int]] = []
        for token in tokens:
            if language.has_spaces:
                begins = self.text((token,)).startswith(" ")
            else:
                begins = bool(groups) and not self.text(tuple(groups[-1])).endswith(_UNFINISHED)
            if begins or not groups:
                groups.append([])
            groups[-1].append(token)
        return [tuple(group) for group in groups]

    def _languages(self) -> tuple[Language, ...]:
        found = sorted(
            (token, match[1])
            for text, token in self._tokenizer.get_vocab().items()
            if (match := _LANGUAGE.fullmatch(text))
        )
        if not found:
            raise BadWeights(self._path, "special tokens", "languages such as <|en|>", "none")
        return tuple(Language(code, token) for token, code in found)

    def _special(self, *names: str) -> int:
        for name in names:
            found = self._tokenizer.token_to_id(name)
            if found is not None:
                return int(found)
        raise BadWeights(self._path, "special tokens", " or ".join(names), "none")
