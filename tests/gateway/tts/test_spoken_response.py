"""Clauses given to the voice, and the text that was heard of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.tts.spoken_response import SpokenResponse


def spoken(*clauses: tuple[str, int]) -> SpokenResponse:
    """An answer of these clauses, each with its samples, all said."""
    speaking = SpokenResponse()
    given = speaking.words("".join(text for text, _ in clauses), 5) + speaking.end(6)
    assert [text for _, text in given] == [text for text, _ in clauses]
    for number, (_, samples) in enumerate(clauses):
        speaking.sound(number, samples)
        speaking.said(number, "")
    return speaking


ANSWER = (("It is big. ", 24_000), ("And it is red and very red.", 48_000))


def test_it_is_over_when_all_is_said() -> None:
    """Text and voice both have to be through."""
    speaking = SpokenResponse()
    ((number, text),) = speaking.words("Yes it is. N", 7)
    assert (number, text, speaking.first_clause_ns) == (0, "Yes it is. ", 7)
    speaking.said(0, "")
    assert not speaking.over
    assert speaking.end(8) == [(1, "N")]
    assert not speaking.over
    speaking.said(1, "")
    assert speaking.over


def test_what_was_heard_are_whole_words() -> None:
    """Whole clauses before the cut, and of the clause that was cut the words by their share."""
    assert spoken(*ANSWER).cut(0) == ""
    assert spoken(*ANSWER).cut(24_000) == "It is big."
    assert spoken(*ANSWER).cut(24_000 + 24_000) == "It is big. And it is red"
    assert spoken(*ANSWER).cut(72_000) == "It is big. And it is red and very red."


@given(st.lists(st.integers(0, 80_000), min_size=1, max_size=5))
def test_a_cut_only_shortens(cuts: list[int]) -> None:
    """Cutting again, further out, brings nothing back."""
    speaking = spoken(*ANSWER)
    lengths = [len(speaking.cut(samples)) for samples in cuts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == len(spoken(*ANSWER).cut(min(cuts)))


def test_a_lost_voice_ends_it() -> None:
    """What it has not said will not be said; text goes on without being given to it."""
    speaking = SpokenResponse()
    speaking.words("Yes it is. And", 1)
    speaking.give_up("it died")
    assert speaking.words(" so on. And", 2) == []
    assert speaking.end(3) == []
    assert speaking.over
    assert speaking.problem == "it died"


def test_duration_is_rounded_up() -> None:
    """Clients that count what they have played round up, too."""
    assert spoken(("Hi", 25)).duration_ms == 2


def test_marks_are_written_and_not_said() -> None:
    """Emphasis over two clauses, a code block, a link: the voice gets words, and each cut gives
    what was written up to there."""
    written = "It is **big, very big.** Do:\n```\nx = 1\n```\nSee [it](http://x.y/z) \U0001f389."
    speaking = SpokenResponse()
    given = [*speaking.words(written, 1), *speaking.end(2)]
    assert "".join(text for _, text in given) == "It is big, very big. Do:\n\nSee it ."
    for number, _ in given:
        speaking.sound(number, 24_000)
        speaking.said(number, "")
    assert speaking.over
    assert speaking.heard_text() == written
    heard = [speaking.cut(24_000 * clauses) for clauses in range(len(given), -1, -1)]
    assert heard[0] == written
    assert heard[-3:] == ["It is **big, very big.**", "It is **big,", ""]
    assert all(written.startswith(text) for text in heard)


def test_what_is_not_said_is_over_at_once() -> None:
    """An answer of a code block or of emoji gives the voice nothing to do."""
    for written in ("```\nx = 1\n```\n", "\U0001f389\U0001f44d", "---\n", "..."):
        speaking = SpokenResponse()
        assert [*speaking.words(written, 1), *speaking.end(2)] == []
        assert speaking.over
        assert speaking.duration_ms == 0
        assert speaking.heard_text() == written


marked = st.lists(
    st.sampled_from(["**", "*", "`", "word", " ", "so on", ". ", ", ", "\n", "- ", "\U0001f389"]),
    max_size=30,
).map("".join)


@given(marked, st.lists(st.integers(0, 9), max_size=8), st.data())
def test_what_was_heard_is_a_beginning_of_what_was_written(
    written: str, lengths: list[int], data: st.DataObject
) -> None:
    """However it came; a later cut gives no less, and one at the end gives all of it."""
    speaking, given_clauses = SpokenResponse(), []
    start = 0
    for length in lengths:
        given_clauses += speaking.words(written[start : start + length], 1)
        start = min(start + length, len(written))
    given_clauses += [*speaking.words(written[start:], 1), *speaking.end(2)]
    for number, _ in given_clauses:
        speaking.sound(number, data.draw(st.integers(1, 50_000)))
        speaking.said(number, "")
    assert speaking.over
    assert speaking.heard_text() == written
    total = speaking.samples
    cuts = sorted(data.draw(st.lists(st.integers(0, total + 10), max_size=6)), reverse=True)
    heard = [speaking.cut(cut) for cut in [total + 10, *cuts]]
    assert all(written.startswith(text) for text in heard)
    assert [len(text) for text in heard] == sorted(map(len, heard), reverse=True)
    if total:
        assert heard[0] == written.rstrip()


def test_slow_text_is_begun_with_its_first_phrase() -> None:
    """As soon as that is there; a clause that comes at once is spoken as a whole."""
    token_ns = 27_000_000
    slow = SpokenResponse()
    given = [
        clause
        for number, word in enumerate(("The", " capital", " of", " France", " is", " Paris."))
        for clause in slow.words(word, number * token_ns)
    ]
    assert given == [(0, "The capital ")]
    assert slow.first_clause_ns == 3 * token_ns
    assert slow.end(6 * token_ns) == [(1, "of France is Paris.")]
    prepared = SpokenResponse()
    assert prepared.words("The capital of France is Paris. It", 0) == [
        (0, "The capital of France is Paris. ")
    ]


def test_the_clause_that_the_voice_was_told_of_comes_first() -> None:
    """Even where more is there by now; a text that begins otherwise is cut as ever."""
    text = "The capital of France is Paris. It is big."
    told = SpokenResponse("The capital ")
    assert told.words(text, 0) == [(0, "The capital "), (1, "of France is Paris. ")]
    assert told.end(0) == [(2, "It is big.")]
    waiting = SpokenResponse("The capital of France ")
    assert waiting.words("The capital of", 0) == []
    assert waiting.words(" France is", 0) == [(0, "The capital of France ")]
    other = SpokenResponse("It is big")
    assert other.words(text, 0) == [(0, "The capital of France is Paris. ")]
