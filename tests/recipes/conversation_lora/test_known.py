"""Only what the base says rightly is taught, and in its words."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

import pytest

from headstart.recipes.conversation_lora.known import AT_ONCE, FACTS, known, spoken


def test_a_wrong_answer_is_left_out_and_a_right_one_kept_in_its_words() -> None:
    """Right is what holds one of the parts at a word's beginning, in any case."""
    answers = {"Planet?": "It's jupiter", "Legs?": "It has 18.", "Yes in French?": 'It is "oui".'}
    facts = [("Planet?", "Jupiter"), ("Legs?", "8|eight"), ("Yes in French?", "oui")]
    found = list(known(facts, lambda asked: [answers[one] for one in asked]))
    assert found == [("Planet?", "It's jupiter."), ("Yes in French?", "It is oui.")]


def test_all_are_asked_a_few_at_once() -> None:
    """No more sessions at a time than AT_ONCE, and none is left out."""
    sizes = []

    def ask(questions: Sequence[str]) -> list[str]:
        sizes.append(len(questions))
        return ["yes"] * len(questions)

    facts = [(f"Number {i}?", "yes") for i in range(2 * AT_ONCE + 3)]
    assert len(list(known(facts, ask))) == len(facts)
    assert sizes == [AT_ONCE, AT_ONCE, 3]


@pytest.mark.parametrize(
    ("written", "said"),
    [("Weak", "Weak."), ('It is "ran."', "It is ran."), ('"Oui" is yes.', "Oui is yes.")],
)
def test_quotation_marks_are_not_spoken(written: str, said: str) -> None:
    """And every answer ends like a sentence."""
    assert spoken(written) == said


def test_our_facts_are_pairs_and_ask_nothing_twice() -> None:
    """What is asked, and what a right answer holds."""
    facts = tomllib.loads(FACTS.read_text())["facts"]
    assert all(len(fact) == 2 and all(fact) for fact in facts)
    assert len({ask for ask, _ in facts}) == len(facts)
