"""The voice hears of an answer's beginning before the turn has ended, if the turn may end."""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.tts.messages import Prepare, Speak
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm


def asked(**update: object) -> SessionBench:
    """A session that speaks, right after the short silence behind a question."""
    bench = SessionBench(speaks=True)
    bench.update(**update)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1900])  # without its silence at the end
    while not bench.commands(api.Hush):
        bench.hear(silence_pcm(20))
    return bench


def prepared(bench: SessionBench, text: str, *, complete: bool = False) -> None:
    ref = bench.commands(api.Hush)[-1].ref
    bench.engine(api.Prepared("sess_test", ref, text, complete=complete))


def told(bench: SessionBench) -> list[str]:
    return [command.text for command in bench.uttered if isinstance(command, Prepare)]


def spoken(bench: SessionBench, *words: str) -> list[str]:
    """The clauses of the answer that begins with these words, after the turn has ended."""
    while not bench.commands(api.Respond):
        bench.hear(silence_pcm(20))
    bench.answer(*words)
    return [command.text for command in bench.uttered if isinstance(command, Speak)]


def test_the_first_clause_is_told_once_it_is_whole() -> None:
    """Once, and the answer begins with what was told."""
    bench = asked()
    for text in ("The", "The capital", "The capital of", "The capital of France"):
        prepared(bench, text)
    assert told(bench) == []
    prepared(bench, "The capital of France is Paris. It")
    prepared(bench, "The capital of France is Paris. It is")
    assert told(bench) == ["The capital of France is Paris. "]
    assert spoken(bench, "The capital of France is Paris.", " It is big.")[0] == told(bench)[0]


def test_an_answer_that_ends_within_its_first_clause_is_told() -> None:
    """Its end says that the clause is whole."""
    bench = asked()
    prepared(bench, "The capital of France is Paris.")
    assert told(bench) == []
    prepared(bench, "The capital of France is Paris.", complete=True)
    assert told(bench) == ["The capital of France is Paris."]


def test_a_turn_that_may_end_early_has_a_first_phrase() -> None:
    """The answer begins with it, though the whole clause is there by then: its sound is made."""
    bench = asked(gateway={"endpointing": "eager"})
    prepared(bench, "The capital of France")
    assert told(bench) == ["The capital "]
    clauses = spoken(bench, "The capital of France is Paris.")
    assert clauses == ["The capital ", "of France is Paris."]


def test_another_answer_is_spoken_as_ever() -> None:
    """What was told ahead has no effect on other words, nor on the next turn's."""
    bench = asked()
    prepared(bench, "The capital of France is Paris. It")
    assert spoken(bench, "It is Paris.") == ["It is Paris."]


def test_a_message_that_goes_on_is_no_work_for_the_voice() -> None:
    """By the model's own estimate; without one the answer counts."""
    bench = asked()
    ref = bench.commands(api.Hush)[-1].ref
    bench.engine(api.EndOfMessage("sess_test", ref, 0, 0.2))
    prepared(bench, "It is Paris.", complete=True)
    assert told(bench) == []
    bench.engine(api.EndOfMessage("sess_test", ref, 0, 0.9))
    prepared(bench, "It is Paris.", complete=True)
    assert told(bench) == ["It is Paris."]


def test_a_clause_of_an_earlier_silence_is_forgotten() -> None:
    """The person went on: the answer to all of it begins as it will."""
    bench = asked()
    prepared(bench, "It is Paris.", complete=True)
    first = bench.commands(api.Hush)[-1].ref
    bench.hear(clip_pcm("capital.wav")[48 * 400 : 48 * 1900])
    while (ref := bench.commands(api.Hush)[-1].ref) == first:
        bench.hear(silence_pcm(20))
    assert ref.turn == first.turn
    bench.engine(api.EndOfMessage("sess_test", ref, 0, 0.2))
    assert spoken(bench, "It is Paris.", " Or so.") == ["It is Paris. ", "Or so."]


def test_only_answers_that_will_be_spoken_are_told() -> None:
    """A session that answers in text does not ask the engine."""
    assert asked().commands(api.Hush)[-1].tell_text
    assert not asked(output_modalities=["text"]).commands(api.Hush)[-1].tell_text
