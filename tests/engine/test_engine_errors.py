"""What fails in one session must not fail in another, nor take the engine with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headstart.engine import api
from headstart.engine.errors import SoftTableFull
from headstart.engine.interfaces import Pcm
from tests.engine.fakes import Bench, FakeChat, FakeWords

EITHER_BACKEND = True

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=2000)


def respond(generation: int = 1, session: str = "s") -> api.Respond:
    return api.Respond(session, generation, f"a{generation}", GREEDY)


def user_item(item_id: str, text: str) -> api.Item:
    return api.Item(item_id, api.Role.USER, (api.Text(text),))


def test_ears_that_fail_cost_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ears that give embeddings may find the session's table full: that is told, the engine goes
    on, and so does the utterance."""
    bench = Bench()
    bench.open()
    heard = bench.recognizer.recognize_batch

    def full(utterances: Sequence[list[int]], pcms: Sequence[Pcm]) -> list[FakeWords]:
        monkeypatch.setattr(bench.recognizer, "recognize_batch", heard)
        raise SoftTableFull(8, 9)

    monkeypatch.setattr(bench.recognizer, "recognize_batch", full)
    bench.say(words=8)
    failed = [event for event in bench.events if isinstance(event, api.Failed)]
    assert [(event.session, event.about, event.code) for event in failed] == [
        ("s", "audio", "soft_table_full")
    ]
    assert bench.stream_text() == "<S>Hi</><U>what is the capital of ecnarf"


def test_an_answer_that_fills_the_session_ends_there() -> None:
    """All that was said stands and the reason is its length: nothing went wrong. The next turn
    finds room, for the window forgets."""
    bench = Bench(limit=540, reply=lambda question: "word " * 300)
    bench.open()
    bench.tell(api.AddItem("s", user_item("u1", "hi")), respond())
    bench.run()
    finished = bench.finished()
    assert (finished.reason, finished.code) == (api.FinishReason.LENGTH, "")
    assert bench.text() == finished.text
    assert len(finished.text) > 450
    bench.tell(api.AddItem("s", user_item("u2", "go on")), respond(2))
    bench.run()
    assert bench.finished(2).reason is api.FinishReason.LENGTH


def test_a_template_that_closes_no_message_has_no_end_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some templates set nothing between the user's words and the answer: a hush speculates all
    the same, and nobody is told how likely the message is over."""
    monkeypatch.setattr(FakeChat, "user_close", ())
    bench = Bench()
    bench.open()
    bench.say()
    bench.tell(api.Hush("s", api.TurnRef(1), 0, speculate=GREEDY))
    bench.run()
    assert not bench.of(api.EndOfMessage)
    bench.tell(api.EndSpeech("s", api.TurnRef(1), 0), respond())
    bench.run()
    assert bench.finished().usage.speculated > 0
