"""The default manner: its note and its limit go with its instructions and with no others."""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.default_prompts import BLIND_NOTE, INSTRUCTIONS
from tests.gateway.session_bench import SessionBench


def test_a_session_begins_with_instructions_and_note() -> None:
    """The engine is told both."""
    (opened,) = SessionBench().commands(api.Open)
    assert (opened.instructions, opened.blind) == (INSTRUCTIONS, BLIND_NOTE)


def test_other_instructions_come_without_note_and_limit() -> None:
    """Whoever says how to answer gets that alone; taking it back brings the note back."""
    bench = SessionBench()
    bench.update(instructions="Talk like a pirate.")
    assert bench.commands(api.Instruct)[-1].blind == ""
    bench.client("response.create")
    assert bench.respond_command().sampling.max_sentences == 0
    bench.update(instructions=INSTRUCTIONS)
    assert bench.commands(api.Instruct)[-1].blind == BLIND_NOTE


def test_our_own_manner_ends_after_three_sentences() -> None:
    """The server's limit goes with the server's instructions."""
    bench = SessionBench()
    bench.client("response.create")
    assert bench.respond_command().sampling.max_sentences == 3
