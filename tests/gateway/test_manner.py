"""The default manner: its examples go with its instructions and with no others."""

from __future__ import annotations

import tomllib
from pathlib import Path

from engine import api
from gateway.manner import EXAMPLES, INSTRUCTIONS
from tests.gateway.session_bench import SessionBench

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "questions.toml"


def test_a_session_begins_with_the_examples() -> None:
    """The engine is opened with instructions and examples."""
    (opened,) = SessionBench().commands(api.Open)
    assert (opened.instructions, opened.examples) == (INSTRUCTIONS, EXAMPLES)


def test_other_instructions_come_without_examples_and_without_a_limit() -> None:
    """Whoever says how to answer gets that alone; taking it back brings the examples back."""
    bench = SessionBench()
    bench.update(instructions="Talk like a pirate.")
    assert bench.commands(api.Instruct)[-1].examples == ()
    bench.client("response.create")
    assert bench.respond_command().sampling.max_sentences == 0
    bench.update(instructions=INSTRUCTIONS)
    assert bench.commands(api.Instruct)[-1].examples == EXAMPLES


def test_our_own_manner_ends_after_three_sentences() -> None:
    """The server's limit goes with the server's instructions."""
    bench = SessionBench()
    bench.client("response.create")
    assert bench.respond_command().sampling.max_sentences == 3


def test_no_measured_question_is_an_example_but_the_one_about_seeing() -> None:
    """What is measured was not shown. "What do you see?" is: what it says of it is measured by
    pictures."""
    asked = {
        question["say"]
        for dialog in tomllib.loads(QUESTIONS.read_text())["dialog"]
        for question in dialog["ask"]
    }
    assert asked & {question for question, _ in EXAMPLES} == {"What do you see?"}
