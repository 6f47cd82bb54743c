"""Passes in pieces: what goes between them, and what waits."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from headstart.engine import api
from headstart.engine.interfaces import Pcm
from tests.engine.fakes import WORD_SAMPLES, Bench, FakeRecognizer, FakeWords, echo

GREEDY = api.Sampling(repetition_penalty=1.0)
QUESTION = "what is the capital of france"
PIECES = 8
SECOND_NS = 1_000_000_000

Work = Generator[None, None, FakeWords]


class PieceByPiece(FakeRecognizer):
    """Every pass takes `PIECES` pieces; `log` has whose piece each was, by its state."""

    def __init__(self, script: str = QUESTION) -> None:
        super().__init__(script)
        self.log: list[int] = []

    def _pieces(self, utterance: list[int]) -> Generator[None, None, None]:
        for number in range(PIECES):
            if number:
                yield
            self.log.append(id(utterance))

    def recognize_in_pieces(
        self, utterances: Sequence[list[int]], pcms: Sequence[Pcm]
    ) -> Generator[None, None, Sequence[FakeWords]]:
        yield from self._pieces(utterances[0])
        return self.recognize_batch(utterances, pcms)

    def finish_in_pieces(self, utterance: list[int], pcm: Pcm | None = None) -> Work:
        yield from self._pieces(utterance)
        return self.finish(utterance, pcm)


@pytest.fixture
def bench() -> Bench:
    bench = Bench(recognizer=PieceByPiece())
    for name in ("s", "t"):
        bench.open(name)
    return bench


def log_of(bench: Bench) -> list[int]:
    assert isinstance(bench.recognizer, PieceByPiece)
    return bench.recognizer.log


def state_of(bench: Bench, name: str) -> int:
    utterance = bench.engine.sessions[name].conversation.utterance
    assert utterance is not None
    return id(utterance.state)


def hear(bench: Bench, name: str, number: int = 0) -> None:
    """One more chunk, which came just now."""
    start = number * 8_000
    bench.tell(api.Audio(name, api.TurnRef(1), start, bytes(16_000), bench.now_ns))


def end(name: str) -> tuple[api.EndSpeech, api.Respond]:
    return api.EndSpeech(name, api.TurnRef(1), 0), api.Respond(name, 1, "a1", GREEDY)


def heard(bench: Bench) -> list[str]:
    return [e.session for e in bench.events if isinstance(e, api.Hearing)]


def test_a_turn_that_ends_goes_between_the_pieces_of_anothers_pass(bench: Bench) -> None:
    """Its final pass, and its answer's first token, are done before that pass goes on; the words
    of both are those they would have been."""
    bench.say("s")
    bench.tell(api.BeginSpeech("t", api.TurnRef(1), "u1", 0))
    before = len(log_of(bench))
    hear(bench, "t")
    for _ in range(3):
        bench.engine.step()
    bench.tell(*end("s"))
    began = len(heard(bench))
    while not bench.of(api.Delta):
        assert bench.engine.step()
    assert heard(bench)[began:] == ["s"]
    s, t = state_of(bench, "t"), log_of(bench)[before:]
    assert t[:3] == [s] * 3
    assert s not in t[3 : 3 + PIECES]
    assert t.count(s) < PIECES
    bench.run()
    assert log_of(bench)[before:].count(s) == PIECES
    assert bench.text() == echo(QUESTION)
    assert bench.stream_text("t") == "<S>Hi</><U>what si"


def test_other_chunks_wait_for_a_pass_that_was_due_before(bench: Bench) -> None:
    """A chunk that comes in the middle of a pass is heard behind it, not between its pieces."""
    for name in ("s", "t"):
        bench.tell(api.BeginSpeech(name, api.TurnRef(1), "u1", 0))
    hear(bench, "s")
    bench.engine.step()
    hear(bench, "t")
    bench.run()
    assert heard(bench) == ["s", "t"]
    s, t = state_of(bench, "s"), state_of(bench, "t")
    assert log_of(bench) == [s] * PIECES + [t] * PIECES


def test_ends_of_turns_are_heard_in_their_order(bench: Bench) -> None:
    """A final pass is not left for one that was asked for later."""
    bench.say("s")
    bench.say("t")
    before = len(log_of(bench))
    bench.tell(*end("s"))
    s, t = state_of(bench, "s"), state_of(bench, "t")
    bench.engine.step()
    bench.tell(*end("t"))
    bench.run()
    assert log_of(bench)[before:] == [s] * PIECES + [t] * PIECES


def test_the_end_of_its_own_turn_makes_a_pass_urgent(bench: Bench) -> None:
    """A pass whose session's turn ends meanwhile does not wait for others that come later."""
    bench.say("t")
    bench.tell(api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    before = len(log_of(bench))
    hear(bench, "s")
    bench.engine.step()
    bench.tell(*end("s"))
    bench.tell(*end("t"))
    s, t = state_of(bench, "s"), state_of(bench, "t")
    bench.run()
    assert log_of(bench)[before:] == [s] * 2 * PIECES + [t] * PIECES


def test_words_are_not_prefilled_between_pieces(bench: Bench) -> None:
    """A decoder step for a few words waits for the pass, as for any other."""
    bench.say("s", words=2)
    bench.tell(api.BeginSpeech("t", api.TurnRef(1), "u1", 0))
    hear(bench, "t")
    bench.engine.step()
    bench.tell(api.AddItem("s", api.Item("i", api.Role.USER, (api.Text("hello"),))))
    steps = bench.runner.steps
    for _ in range(PIECES - 2):
        bench.engine.step()
        assert bench.runner.steps == steps
    bench.run()
    assert bench.runner.steps > steps


def test_a_closed_sessions_pass_ends_at_once(bench: Bench) -> None:
    """No further piece of it is run, and the others go on."""
    bench.tell(api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    hear(bench, "s")
    bench.engine.step()
    bench.tell(api.Close("s"))
    bench.say("t")
    assert not bench.engine.is_recognising
    assert len(log_of(bench)) == 1 + 3 * PIECES
    assert bench.recognizer.passes == [[8_000]] * 3


def test_the_engine_closes_in_the_middle_of_a_pass(bench: Bench) -> None:
    """The rest of it is not run."""
    bench.tell(api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    hear(bench, "s")
    bench.engine.step()
    assert bench.engine.is_recognising
    bench.close()
    assert not bench.engine.sessions
    assert len(log_of(bench)) == 1


def test_in_pieces_or_at_once_it_is_the_same_conversation() -> None:
    """Speech, a hush, a resumption, an end and an answer."""
    texts = []
    for recognizer in (FakeRecognizer(QUESTION), PieceByPiece()):
        bench = Bench(recognizer=recognizer)
        bench.open()
        bench.say(words=4)
        bench.tell(api.Hush("s", api.TurnRef(1), 0, speculate=GREEDY))
        bench.run()
        bench.tell(api.Resume("s", api.TurnRef(1, 1)))
        rest = api.Audio("s", api.TurnRef(1, 1), 16_000, bytes(4 * WORD_SAMPLES), bench.now_ns)
        bench.tell(rest, api.EndSpeech("s", api.TurnRef(1, 1), 0))
        bench.tell(api.Respond("s", 1, "a1", GREEDY))
        bench.run()
        texts.append((bench.text(), bench.stream_text()))
    assert texts[0] == texts[1]
    assert texts[0][0] == echo(QUESTION)
