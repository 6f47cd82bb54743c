"""What an LLM server does wrong while it is used: named errors or bounded retries, and the session
and all others live on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server.backend import MAX_TRIES
from headstart.engine.backends.llm_server.http_client import MAX_LINE_BYTES, Timeouts
from tests.engine.backends.llm_server.bench import ServerBench, scripted
from tests.engine.backends.llm_server.scripted_server import Fault
from tests.engine.commands import GREEDY, hush, respond, user_item
from tests.engine.fakes import echo

HASTY = Timeouts(connect_s=5.0, first_s=3.0, between_s=1.5)
ANSWER = echo("hello")


@pytest.fixture
def bench() -> Iterator[ServerBench]:
    made = ServerBench()
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[ServerBench]:
    made = ServerBench(timeouts=HASTY)
    yield made
    made.close()


def ask(bench: ServerBench, *faults: Fault, session: str = "s", generation: int = 1) -> None:
    """One typed question in a new session, with these faults on the way to its answer."""
    bench.tell(api.Open(session, "Hi"), api.AddItem(session, user_item("u", "hello")))
    bench.run()
    bench.server.faults.extend(faults)
    bench.tell(respond(generation, session))
    bench.run()


PASSING = {
    "429": Fault(status=429, headers="retry-after: 0\r\n"),
    "503": Fault(status=503),
    "500": Fault(status=500),
    "closed at once": Fault(after=0),
    "closed in mid-stream": Fault(after=5),
    "garbage in mid-stream": Fault(after=5, garbage=b"data: {not json\n\n"),
    "no events": Fault(after=5, garbage=b"<html>oops</html>\n"),
    "not a completion": Fault(after=5, garbage=b'data: {"choices": 7}\n\n'),
    "a number": Fault(after=0, garbage=b"data: 7\n\n"),
    "an error in the stream": Fault(after=5, error="CUDA out of memory"),
    "a line without end": Fault(after=2, garbage=b"data: " + b"x" * (MAX_LINE_BYTES + 1)),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_passing_fault_costs_a_retry(bench: ServerBench, fault: Fault) -> None:
    """The answer goes on behind what had come: its text is whole, and nothing comes twice."""
    ask(bench, fault)
    assert bench.text() == ANSWER
    assert bench.finished().reason is api.FinishReason.STOP
    assert bench.backend.totals.retries == 1
    first, second = bench.server.of("answer")
    assert second.prompt == [*first.prompt, *ANSWER.encode()[: fault.after if first.sent else 0]]


def test_a_stall_in_mid_stream_is_a_retry(hasty: ServerBench) -> None:
    """Silence for too long counts as a broken connection, which is closed."""
    ask(hasty, Fault(stall=True, after=5))
    assert hasty.text() == ANSWER
    assert hasty.server.of("answer")[0].abandoned


LASTING = {
    "busy": (Fault(status=429), "llm_busy"),
    "failing": (Fault(status=500), "llm_failed"),
    "closing": (Fault(after=0), "llm_connection_lost"),
    "garbage": (Fault(after=0, garbage=b"data: nonsense\n\n"), "llm_garbage"),
}


@pytest.mark.parametrize(("fault", "code"), LASTING.values(), ids=LASTING.keys())
def test_a_lasting_fault_is_a_named_error(bench: ServerBench, fault: Fault, code: str) -> None:
    """After a few tries the answer fails by name; the session's next answer works."""
    ask(bench, *[fault] * MAX_TRIES)
    assert bench.finished().reason is api.FinishReason.FAILED
    assert bench.finished().code == code
    assert len(bench.server.of("answer")) == MAX_TRIES
    totals = bench.backend.totals.report()
    assert (totals.failures, totals.retries) == ({code: MAX_TRIES}, MAX_TRIES - 1)
    bench.tell(respond(2))
    bench.run()
    assert bench.text(2) == ANSWER


REFUSALS = {
    "wrong key": (Fault(status=401), "llm_key_refused"),
    "bad request": (Fault(status=400), "llm_refused"),
    "model gone": (Fault(status=404), "llm_refused"),
    "another model": (Fault(model="another"), "llm_model_changed"),
}


@pytest.mark.parametrize(("fault", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_not_tried_again(bench: ServerBench, fault: Fault, code: str) -> None:
    """It would be refused again."""
    ask(bench, fault)
    assert bench.finished().code == code
    assert len(bench.server.of("answer")) == 1


def test_a_fault_leaves_other_sessions_alone(bench: ServerBench) -> None:
    """One session's stream breaks for good while another one's answer is written."""
    bench.tell(api.Open("t", "Hi"), api.AddItem("t", user_item("u", "good day")))
    ask(bench, *[Fault(status=500)] * MAX_TRIES)
    bench.tell(respond(2, "t"))
    bench.run()
    assert bench.finished(1).code == "llm_failed"
    assert bench.text(2) == echo("good day")


def test_a_warm_up_that_fails_is_no_ones_error(bench: ServerBench) -> None:
    """Nobody hears of it; the answer comes without a head start."""
    bench.server.faults.extend([Fault("warm-up", status=500), Fault("warm-up", garbage=b"oops")])
    ask(bench)
    assert bench.of(api.Failed) == []
    assert bench.text() == ANSWER
    totals = bench.backend.totals.report()
    assert (totals.failures, totals.retries) == ({"llm_failed": 1}, 0)


def test_a_warm_up_that_stalls_does_not_hold_up_the_answer_for_good(hasty: ServerBench) -> None:
    """It is given up after the time for a first token."""
    hasty.server.hold("warm-up")
    hasty.tell(api.Open("s", "Hi"), api.AddItem("s", user_item("u", "hello")), respond())
    hasty.run()
    assert hasty.text() == ANSWER
    hasty.server.release()


def test_a_failed_speculation_is_tried_at_the_endpoint(bench: ServerBench) -> None:
    """Nothing was promised at the hush, so nothing is reported."""
    bench.open()
    bench.say()
    bench.server.faults.extend([Fault(status=400)])
    bench.tell(hush())
    bench.run()
    assert bench.of(api.Finished) == []
    bench.tell(api.EndSpeech("s", api.TurnRef(1), 0), respond())
    bench.run()
    assert bench.text() == echo("what is the capital of france")


def test_a_server_that_closes_after_each_request_is_no_fault() -> None:
    """Each request then has a connection of its own."""
    bench = ServerBench(server=scripted(block=1, closes=True))
    ask(bench)
    ask(bench, session="t", generation=2)
    assert (bench.text(1), bench.text(2)) == (ANSWER, ANSWER)
    assert bench.backend.totals.retries == 0
    bench.close()


def test_a_server_that_never_ends_is_cut_off() -> None:
    """More pieces than tokens were asked for."""
    server = scripted(lambda _: "x" * 5000, block=1)
    bench = ServerBench(server=server)
    unbounded = server._choices

    def endless(*arguments: Any, **settings: Any) -> Any:
        if arguments[0].kind == "answer":
            arguments[0].body["max_tokens"] = 100_000
        return unbounded(*arguments, **settings)

    server._choices = endless  # type: ignore[method-assign]
    bench.tell(api.Open("s", "Hi"), api.AddItem("s", user_item("u", "hello")))
    bench.tell(respond(sampling=api.Sampling(repetition_penalty=1.0, max_tokens=10)))
    bench.run()
    assert bench.finished().reason is api.FinishReason.LENGTH
    assert bench.finished().usage.output == 10
    assert bench.server.of("answer")[0].abandoned
    bench.close()


def test_a_dead_server_is_a_named_error_and_a_new_one_is_used(
    bench: ServerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens at its address any more; when somebody does again, the session goes on. The
    log says where; the client is not told the addresses of the operator's network."""
    ask(bench)
    bench.server.__exit__()
    bench.tell(respond(2))
    bench.run()
    assert bench.finished(2).code == "llm_unreachable"
    assert bench.finished(2).message == "the LLM server does not answer"
    assert f"the answer failed: no LLM server answers at http://127.0.0.1:{bench.server.port}" in (
        caplog.text
    )
    again = scripted(block=1)
    again.port = bench.server.port
    bench.server = again.__enter__()
    bench.tell(respond(3, sampling=GREEDY))
    bench.run()
    assert bench.finished(3).reason is api.FinishReason.STOP
