"""What is sent when, and what becomes of it: warm-ups, speculation, interruption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server.capabilities import PromptForm
from headstart.engine.backends.llm_server.totals import Kind
from tests.engine.backends.llm_server.bench import ServerBench, scripted
from tests.engine.commands import GREEDY, end, hush, respond, user_item
from tests.engine.fakes import WORD_SAMPLES, echo

QUESTION = "what is the capital of france"
LONG = " ".join(["word"] * 60)


@pytest.fixture
def benches() -> Iterator[Any]:
    made: list[ServerBench] = []

    def make(*arguments: Any, **settings: Any) -> ServerBench:
        made.append(ServerBench(*arguments, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.server.release()
        bench.close()


def test_prompts_are_sent_ahead_up_to_a_blocks_boundary(benches: Any) -> None:
    """Each warm-up ends where a block of the server's cache ends, and asks for one token."""
    bench = benches(LONG, server=scripted(block=16))
    bench.open()
    bench.say(words=60)
    sent = bench.server.of("warm-up")
    assert len(sent) > 5
    assert all(len(seen.prompt) % 16 == 0 and seen.body["max_tokens"] == 1 for seen in sent)
    lengths = [len(seen.prompt) for seen in sent]
    assert lengths == sorted(lengths)
    stream = bench.engine.sessions["s"].stream
    assert stream.kv_len == lengths[-1] == len(stream) - len(stream) % 16


def test_little_is_computed_twice(benches: Any) -> None:
    """Of what the server computes while listening, at most 30 % is not needed in the end, with one
    newest word in eight misheard. (The recogniser's guess is the word read backwards.)"""
    spoken = "level radar civic noon kayak refer rotor words " * 8
    bench = benches(spoken, server=scripted(block=16))
    bench.open()
    bench.say(words=60)
    bench.tell(end(), respond())
    bench.run()
    computed = sum(len(seen.prompt) - seen.cached for seen in bench.server.requests if seen.prompt)
    assert computed <= 1.3 * bench.finished().usage.input
    assert bench.finished().usage.cached >= 0.9 * bench.finished().usage.input - 16


def test_totals_are_those_that_the_server_counts(benches: Any) -> None:
    """Requests by kind, and of their prompts' tokens those that were computed and cached."""
    bench = benches(LONG, server=scripted(block=16))
    bench.open()
    bench.say(words=60)
    bench.tell(end(), respond())
    bench.run()
    totals, seen = bench.backend.totals.report(), bench.server.requests
    assert totals.requests["warm_up"] == len(bench.server.of("warm-up")) > 5
    assert totals.requests["answer"] == len(bench.server.of("answer")) == 1
    fates = totals.prompt_tokens["warm_up"]
    sent = bench.server.of("warm-up")
    assert fates["cached"] == sum(one.cached for one in sent) > 0
    assert fates["computed"] == sum(len(one.prompt) - one.cached for one in sent)
    (answer,) = bench.server.of("answer")
    told = {"computed": len(answer.prompt) - answer.cached, "cached": answer.cached}
    assert totals.prompt_tokens["answer"] == told
    assert not totals.failures
    assert len(seen) == sum(totals.requests.values())


def test_tokens_of_a_silent_server_are_unknown(benches: Any) -> None:
    """A server that does not say what it had cached is not said to have computed everything."""
    bench = benches(LONG, server=scripted(block=16, tells_cached=False))
    bench.open()
    bench.say(words=60)
    bench.tell(end(), respond())
    bench.run()
    for kind in ("warm_up", "answer"):
        assert bench.backend.totals.report().prompt_tokens[kind].keys() == {"unknown"}


def test_one_warm_up_is_in_flight_and_the_newest_words_follow(benches: Any) -> None:
    """While one is at the server, words only gather; then all of them are sent at once."""
    bench = benches(LONG, server=scripted(block=1))
    bench.server.hold("warm-up")
    bench.tell(api.Open("s", "Hi"))
    bench.engine.step()
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech("s", ref, "u1", 0))
    for start in range(0, 20 * WORD_SAMPLES, 8_000):
        bench.tell(api.Audio("s", ref, start, bytes(16_000), 0))
        while bench.engine.step():
            pass
    bench.step_until(lambda: len(bench.server.of("warm-up")) == 1)
    assert bench.backend.totals.requests[Kind.WARM_UP] == 1
    bench.server.release()
    bench.run()
    first, second = bench.server.of("warm-up")
    assert second.prompt[: len(first.prompt)] == first.prompt
    assert len(second.prompt) == len(bench.engine.sessions["s"].stream)


def test_a_stale_warm_up_is_cancelled(benches: Any) -> None:
    """Its words were revised: the connection is closed, and the right ones are sent."""
    bench = benches(server=scripted(block=1))
    bench.open()
    bench.server.hold("warm-up")
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech("s", ref, "u1", 0))
    bench.tell(api.Audio("s", ref, 0, bytes(2 * 2 * WORD_SAMPLES), 0))
    before = len(bench.server.of("warm-up"))
    bench.step_until(lambda: len(bench.server.of("warm-up")) > before)
    stale = bench.server.of("warm-up")[-1]  # ends in "si", a word misheard
    bench.tell(api.Audio("s", ref, 2 * WORD_SAMPLES, bytes(2 * 2 * WORD_SAMPLES), 0))
    bench.step_until(lambda: stale.abandoned)
    bench.server.release()
    bench.run()
    assert bench.backend.totals.cancelled[Kind.WARM_UP] == 1
    assert bench.server.of("warm-up")[-1].prompt == list(bench.engine.sessions["s"].stream.tokens)


def test_nothing_is_sent_to_the_client_before_the_endpoint(benches: Any) -> None:
    """The real request starts at the hush; its tokens are all there at the endpoint."""
    bench = benches()
    bench.open()
    bench.say()
    bench.tell(hush())
    bench.run()
    (asked,) = bench.server.of("answer")
    assert asked.done
    assert bench.of(api.Delta) == []
    bench.tell(end(), respond())
    bench.run()
    assert bench.text() == echo(QUESTION)
    assert len(bench.server.of("answer")) == 1
    assert bench.finished().usage.speculated == len(echo(QUESTION))


def test_the_end_of_the_message_is_told_after_the_whole_answer_too(benches: Any) -> None:
    """The estimate is a request of its own, and may take longer than a short answer."""
    bench = benches()
    bench.open()
    bench.say()
    bench.server.hold("probe")
    bench.tell(hush())
    session = bench.engine.sessions["s"]
    bench.step_until(lambda: session.answer is not None and session.answer.finished is not None)
    bench.engine.step()
    assert bench.of(api.EndOfMessage) == []
    bench.server.release()
    bench.run()
    (told,) = [event for event in bench.events if isinstance(event, api.EndOfMessage)]
    assert told.probability > 0.9


def test_speech_that_resumes_closes_the_stream(benches: Any) -> None:
    """The server sees its client go; nothing of that answer is ever sent."""
    bench = benches()
    bench.open()
    bench.say(words=4)
    bench.server.hold("answer")
    bench.tell(hush())
    bench.step_until(lambda: len(bench.server.of("answer")) == 1)
    bench.tell(api.Resume("s", api.TurnRef(1, 1)))
    (asked,) = bench.server.of("answer")
    bench.step_until(lambda: asked.abandoned)
    bench.server.release()
    bench.run()
    assert bench.of(api.Delta) == []
    assert bench.of(api.Finished) == []


def test_a_cancelled_answer_keeps_what_was_said(benches: Any) -> None:
    """Barge-in closes the stream; the next prompt holds what had come, and not a token more."""
    pace = scripted(lambda _: "one two three " * 200, block=1, context_tokens=8192)
    bench = benches(server=pace)
    bench.open()
    bench.say()
    bench.tell(end(), respond(sampling=api.Sampling(repetition_penalty=1.0, max_tokens=2000)))
    bench.step_until(lambda: len(bench.text()) > 10)
    bench.tell(api.Cancel("s", 1))
    (asked,) = bench.server.of("answer")
    bench.step_until(lambda: asked.abandoned or asked.done)
    bench.run()
    assert bench.finished().reason is api.FinishReason.CANCELLED
    said = bench.finished().text
    assert bench.stream_text().endswith(f"<A>{said}</>")
    assert asked.abandoned


def test_an_answer_waits_for_the_warm_up_of_its_own_beginning(benches: Any) -> None:
    """Two requests for one prefix would compute it twice."""
    bench = benches(server=scripted(block=1))
    bench.server.hold("warm-up")
    bench.tell(api.Open("s", "Hi"), api.AddItem("s", user_item("u", "hello")))
    bench.step_until(lambda: len(bench.server.of("warm-up")) == 1)
    bench.tell(respond())
    while bench.engine.step():
        pass
    assert bench.server.of("answer") == []
    bench.server.release()
    bench.run()
    (asked,) = bench.server.of("answer")
    assert asked.cached >= len(bench.server.of("warm-up")[0].prompt) - 1
    assert bench.finished().reason is api.FinishReason.STOP


def test_the_first_token_is_barred_from_beginning_a_call(benches: Any) -> None:
    """With tools that must not be called: one token with a bias, then the rest without it."""
    bench = benches(reply=lambda _: "<tool_call> I mean hello")
    tools = (api.Tool("weather"),)
    bench.tell(api.Open("s", "Hi", tools=tools), api.AddItem("s", user_item("u", "hello")))
    bench.run()
    never = api.Sampling(repetition_penalty=1.0, call=api.ToolChoice.NONE)
    bench.tell(respond(sampling=never))
    bench.run()
    first, rest = bench.server.of("answer")
    assert first.body["max_tokens"] == 1
    assert str(ord("<")) in first.body["logit_bias"]
    assert "logit_bias" not in rest.body
    assert rest.prompt == [*first.prompt, ord("-")]


def test_sampling_reaches_the_server(benches: Any) -> None:
    """Each setting by its name; the repetition penalty is not sent (docs/backends.md)."""
    bench = benches()
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "hello")))
    wanted = api.Sampling(temperature=0.7, top_p=0.9, top_k=5, seed=3, max_tokens=7)
    bench.tell(respond(sampling=wanted))
    bench.run()
    (asked,) = bench.server.of("answer")
    known = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3, "max_tokens": 7}
    assert {name: asked.body[name] for name in known} == known
    assert not {"repetition_penalty", "repeat_penalty"} & asked.body.keys()
    assert bench.finished().reason is api.FinishReason.LENGTH
    assert bench.finished().usage.output == 7


def test_share_domains_are_the_caches_salt(benches: Any) -> None:
    """Sessions of different domains do not share what a server has cached."""
    bench = benches()
    bench.tell(api.Open("s", "Hi", share_domain=b"secret"), api.Open("t", "Hi"))
    bench.run()
    salts = [seen.body.get("cache_salt") for seen in bench.server.of("warm-up")]
    assert sorted(salts, key=str) == [None, "c2VjcmV0"]


def test_whole_messages_are_sent_at_the_endpoint_only(benches: Any) -> None:
    """A server that takes chat messages only, and tells nothing of a cache."""

    def render(messages: list[dict[str, str]]) -> list[int]:
        names = {"system": 256, "user": 257, "assistant": 259}
        return [t for m in messages for t in (names[m["role"]], *m["content"].encode())] + [259]

    server = scripted(dialect="chat", render=render, tells_cached=False)
    known = {"prompt": PromptForm.MESSAGES, "tells_cached": False, "extensions": False}
    bench = benches(server=server, capabilities=known)
    bench.open()
    bench.say()
    bench.tell(hush())
    bench.run()
    assert bench.server.requests == []
    assert bench.backend.capabilities.facts()["prefill"].startswith("whole messages")
    bench.tell(end(), respond())


def test_eight_sessions_have_one_warm_up_each(benches: Any) -> None:
    """None waits for another, and each gets its own answer."""
    bench = benches(server=scripted(block=1), blocks=1024)
    names = [f"s{n}" for n in range(8)]
    bench.server.hold("warm-up")
    bench.tell(*(api.Open(name, f"I am {name}") for name in names))
    bench.step_until(lambda: len(bench.server.of("warm-up")) == 8)
    bench.server.release()
    bench.run()
    for number, name in enumerate(names, 1):
        bench.tell(api.AddItem(name, user_item("u", f"hello {name}")))
        bench.tell(respond(number, name, GREEDY))
    bench.run()
    assert [bench.text(n) for n in range(1, 9)] == [echo(f"hello {name}") for name in names]
