"""Canary words: each visit has its own, and their appearance in another visit is a leak.

A visit has a *code* (for what the server passes on: ids, instructions, items) and a *phrase* of two
common words (for what a model can repeat: "scarlet pelican"). Neither is issued twice, so a word
that comes late, from a cache, is caught too. `Canaries.watch` reads everything that a client
receives; text that comes in pieces is read across them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COLOURS = """
    amber azure beige bronze coral crimson cyan ebony emerald indigo ivory jade khaki lemon
    lilac magenta maroon mauve ochre olive opal peach pearl plum purple ruby russet saffron
    scarlet teal turquoise umber violet
"""
COLOURS = _COLOURS.split()
_ANIMALS = """
    badger beaver bison buffalo camel cheetah cobra condor cougar coyote dolphin donkey eagle
    falcon ferret gazelle gecko giraffe gorilla hamster hedgehog heron hyena iguana jackal jaguar
    kangaroo koala lemur leopard lizard llama lobster mammoth meerkat mongoose octopus ostrich
    otter panther parrot peacock pelican penguin possum puffin python raccoon raven reindeer
    salmon scorpion seal squirrel swan tapir tiger tortoise toucan turtle vulture walrus weasel
    wombat yak zebra
"""
ANIMALS = _ANIMALS.split()
SHOWN_OBJECT = "egyptian cat"
"""The label of the one picture that is shown; visits without it must not receive this word."""
CODE = re.compile(r"cnry[0-9a-f]{10}")
PHRASE = re.compile(
    rf"\b({'|'.join(COLOURS)})[\s\"]+({'|'.join(ANIMALS)})\b|{SHOWN_OBJECT}", re.IGNORECASE
)
TAIL_CHARS = 64
"""Of an answer in pieces, how much earlier text is read again with the next piece."""


@dataclass
class Secret:
    """One visit's canary words. `known`: words that it may receive, because it sent them itself."""

    code: str
    phrase: str
    known: set[str] = field(default_factory=set)
    said: str = ""
    told: int = 0
    """Times that an answer repeated the visit's own phrase, as a leaked one would be repeated."""

    def __post_init__(self) -> None:
        self.known |= {self.code, self.phrase}

    def shows_the_cat(self) -> None:
        self.known.add(SHOWN_OBJECT)


class Canaries:
    """Issues secrets and finds those that reached the wrong visit."""

    def __init__(self, rng: random.Random) -> None:
        self.leaks: list[str] = []
        self.watched_chars = 0
        self._rng = rng
        self._phrases = [f"{colour} {animal}" for colour in COLOURS for animal in ANIMALS]
        rng.shuffle(self._phrases)
        self._codes: set[str] = set()
        self._issued: set[str] = {SHOWN_OBJECT}

    def issue(self) -> Secret:
        """Words never issued before. Raises `IndexError` after some 2,300 of them."""
        code = f"cnry{self._rng.getrandbits(40):010x}"
        phrase = self._phrases.pop()
        self._codes.add(code)
        self._issued |= {code, phrase}
        return Secret(code, phrase)

    def somebody(self) -> str:
        """The code of some visit, past or present."""
        return self._rng.choice(sorted(self._codes)) if self._codes else "cnry0000000000"

    def watch(self, secret: Secret, text: str, piece: str = "") -> None:
        """Check `text`, one whole message as received. `piece`: the part of an answer's text in
        it."""
        self.watched_chars += len(text)
        words = list(_words(text))
        if piece:
            secret.said = (secret.said + piece)[-TAIL_CHARS - len(piece) :]
            words += _words(secret.said)
        for word in words:
            if word in self._issued and word not in secret.known:
                self.leaks.append(f"{word!r} reached {secret.code} in {text[:300]}")
                secret.known.add(word)  # once is enough
        secret.told += secret.phrase in words and '"response.done"' in text


def _words(text: str) -> Iterator[str]:
    yield from CODE.findall(text)
    for found in PHRASE.finditer(text):
        whole = found.group(0).lower()
        yield whole if whole == SHOWN_OBJECT else f"{found.group(1)} {found.group(2)}".lower()
