"""headstart.benchmarks.peers.score: the same judgement for every system."""

from __future__ import annotations

import json

import pytest

from headstart.benchmarks.peers.clips import Plan
from headstart.benchmarks.peers.run import _word_errors
from headstart.benchmarks.peers.score import (
    ASSISTANT,
    USER,
    Answer,
    Conversation,
    Score,
    as_line,
    asked_in,
    score,
    summary,
)

QUESTION = "What is the largest planet in our solar system?"
WHOLE = Plan(0, "whole", "joe", QUESTION, "jupiter")
INSIDE = Plan(1, "inside", "joe", QUESTION, "jupiter", pause_ms=800)
BETWEEN = Plan(2, "between", "joe", QUESTION, "jupiter", "I need your help.", pause_ms=800)


def spell(text: str) -> str:
    return text.lower().strip("?.").replace("?", "").replace(".", "")


def judged(talk: Conversation) -> Score:
    return score(talk, spell, _word_errors)


def answer(*read: tuple[str, str], token_s: float = 10.4, sound_s: float | None = 10.9) -> Answer:
    return Answer(list(read), token_s, sound_s, text="Jupiter is the largest.")


def test_a_plain_turn() -> None:
    """Times run from the end of speech."""
    found = judged(Conversation(WHOLE, 10.0, [QUESTION], [answer((USER, QUESTION))]))
    assert (found.first_token_ms, found.first_sound_ms) == (400.0, 900.0)
    assert not found.broken
    assert not found.false_start
    assert (found.wrong, found.words, found.right) == (0, 9, True)


def test_words_heard_wrong() -> None:
    """They count as errors, and break no turn by themselves."""
    heard = "What is the large planet in our solar system?"
    found = judged(Conversation(WHOLE, 10.0, [heard], [answer((USER, heard))]))
    assert (found.wrong, found.broken) == (1, False)


def test_no_answer_is_a_broken_turn() -> None:
    """Also where a request brought no text."""
    silent = Answer([(USER, QUESTION)])
    for answers in ([], [silent]):
        found = judged(Conversation(WHOLE, 10.0, [QUESTION], answers))
        assert found.broken
        assert (found.first_token_ms, found.first_sound_ms, found.right) == (None, None, None)


FIRST, SECOND = "What is the largest planet", "in our solar system?"


def test_an_answer_to_half_a_question_is_broken() -> None:
    """Whichever half, and whether or not the other was answered before."""
    to_first = answer((USER, FIRST))
    to_second = answer((USER, FIRST), (ASSISTANT, "Jupiter."), (USER, SECOND))
    assert judged(Conversation(INSIDE, 10.0, [FIRST, SECOND], [to_first])).broken
    assert judged(Conversation(INSIDE, 10.0, [FIRST, SECOND], [to_first, to_second])).broken


def test_a_false_start_that_is_put_right() -> None:
    """The last answer is to the whole question: in two messages, or in one."""
    early = Answer([(USER, FIRST)], 9.0, 9.2, heard_before_end_s=0.25, text="Jup")
    for read in (
        [(USER, FIRST), (USER, SECOND)],
        [(USER, FIRST), (ASSISTANT, "  "), (USER, SECOND)],
        [(USER, f"{FIRST} {SECOND}")],
    ):
        found = judged(Conversation(INSIDE, 10.0, [FIRST, SECOND], [early, answer(*read)]))
        assert not found.broken
        assert found.false_start
        assert found.heard_over_ms == 250.0
        assert found.first_sound_ms == 900.0
        assert found.answers == 2


def test_an_opening_counts_as_a_part() -> None:
    """An answer to the question alone has not put the false start right."""
    alone = answer((USER, "I need your help"), (ASSISTANT, "Sure."), (USER, QUESTION))
    heard = ["I need your help", QUESTION]
    assert judged(Conversation(BETWEEN, 10.0, heard, [alone])).broken
    both = answer((USER, f"I need your help. {QUESTION}"))
    assert not judged(Conversation(BETWEEN, 10.0, heard, [both])).broken


def test_what_an_answer_is_to() -> None:
    """The user's messages since the assistant's last one."""
    assert asked_in([]) == ""
    assert asked_in([(USER, "a"), (ASSISTANT, "b"), (USER, "c"), (USER, "d")]) == "c d"
    assert asked_in([(USER, "a"), (ASSISTANT, "b")]) == ""


def row(name: str, token_ms: float | None, *, broken: bool = False, wrong: int = 0) -> Score:
    sound_ms = None if token_ms is None else token_ms + 100
    return Score(name, token_ms, sound_ms, broken, 0.0, broken, 1, wrong, 10, None, "", "")


def test_what_is_summed_up() -> None:
    """Times of broken turns do not count: an answer to half a question is early."""
    found = summary(
        [
            row("0-whole-a", 300),
            row("1-whole-b", 500),
            row("2-inside-c", 700, wrong=3),
            row("3-inside-d", -900, broken=True),
        ]
    )
    assert (found["first_token_ms_p50"], found["first_token_ms_p95"]) == (500, 700)
    assert (found["first_sound_ms_p50"], found["first_sound_ms_p95"]) == (600, 800)
    assert (found["broken_share"], found["broken_share_paused"]) == (0.25, 0.5)
    assert found["false_start_share"] == 0.25
    assert found["wer"] == 0.075
    assert found["right_share"] is None


def test_nothing_to_sum_up() -> None:
    """None, not zero."""
    found = summary([])
    assert found["first_token_ms_p50"] is None
    assert (found["wer"], found["clips"]) == (None, 0)


def test_a_line_holds_every_answer() -> None:
    """So that a reader can see why a turn was judged as it was."""
    talk = Conversation(INSIDE, 10.0, [FIRST], [answer((USER, FIRST), sound_s=None)])
    line = json.loads(json.dumps(as_line("pipecat", talk, judged(talk))))
    assert line["all_answers"][0]["first_token_ms"] == pytest.approx(400.0)
    assert line["all_answers"][0]["first_sound_ms"] is None
    assert (line["system"], line["broken"], line["said"]) == ("pipecat", True, QUESTION)
