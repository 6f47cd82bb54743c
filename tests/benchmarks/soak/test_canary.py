"""The watch for other people's words: it has to find them in whatever shape they come."""

from __future__ import annotations

import json
import random

from headstart.benchmarks.soak.canary import SHOWN_OBJECT, Canaries


def pair() -> tuple[Canaries, list[str]]:
    """A watch of two visits; ada's code and phrase are not bob's to hear."""
    canaries = Canaries(random.Random(1))
    ada = canaries.issue()
    return canaries, [ada.code, ada.phrase]


def test_anothers_code_or_phrase_is_a_leak() -> None:
    """In an id, in a text, in capitals, with the words in two strings of a JSON array."""
    for shape in ("{}", "item_{}_1", '{{"text": "It is {}."}}'):
        canaries, words = pair()
        bob = canaries.issue()
        for word in words:
            canaries.watch(bob, shape.format(word))
        wanted = 2 if shape != "item_{}_1" else 1  # a phrase is words, not a part of one
        assert len(canaries.leaks) == wanted
    canaries, (_, phrase) = pair()
    canaries.watch(canaries.issue(), phrase.upper())
    assert len(canaries.leaks) == 1


def test_a_phrase_that_comes_in_pieces_is_found() -> None:
    """Deltas that cut it anywhere."""
    for cut in range(1, 8):
        canaries, (_, phrase) = pair()
        bob = canaries.issue()
        for piece in ("Surely ", phrase[:cut], phrase[cut:], " it is."):
            canaries.watch(bob, json.dumps({"delta": piece}), piece)
        assert len(canaries.leaks) == 1


def test_ones_own_words_are_none() -> None:
    """Each visit may be told what it said itself; its own phrase in an answer is counted."""
    canaries, _ = pair()
    bob = canaries.issue()
    canaries.watch(bob, f'{{"type": "response.done", "text": "{bob.phrase} {bob.code}"}}')
    canaries.watch(bob, f'{{"type": "conversation.item.added", "text": "{bob.phrase}"}}')
    assert canaries.leaks == []
    assert bob.told == 1


def test_only_a_visit_with_the_picture_may_receive_its_label() -> None:
    """What the eyes call the one picture is a secret, too."""
    canaries, _ = pair()
    bob = canaries.issue()
    canaries.watch(bob, f"I see an {SHOWN_OBJECT}.")
    assert len(canaries.leaks) == 1
    cleo = canaries.issue()
    cleo.shows_the_cat()
    canaries.watch(cleo, "I see an Egyptian cat.")
    assert len(canaries.leaks) == 1


def test_no_word_is_issued_twice() -> None:
    """2,000 visits, 4,000 words."""
    canaries = Canaries(random.Random(1))
    words = [word for _ in range(2000) for word in vars(canaries.issue())["known"]]
    assert len(words) == len(set(words)) == 4000
