"""Three servers, of which one dies, drains, stalls, is full, comes back, or is another's."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities
from headstart.engine.backends.llm_server.errors import (
    LlmFailed,
    LlmServersDiffer,
    LlmUnreachable,
)
from headstart.engine.backends.llm_server.http_client import HttpClient, Timeouts
from headstart.engine.backends.llm_server.probe import find_out
from headstart.engine.backends.llm_server.servers import Known, Server, Servers, find_servers
from headstart.engine.config import EngineConfig
from headstart.engine.interfaces import ModelServices
from headstart.engine.placement import NodeState
from headstart.engine.process.llm_server import parts_of
from tests.engine.backends.llm_server.bench import WAIT_S, scripted
from tests.engine.backends.llm_server.pool import SECOND_NS, Bytes, PoolBench, join, known
from tests.engine.backends.llm_server.scripted_server import OPENAI, Fault, ScriptedServer
from tests.engine.commands import GREEDY, respond, user_item
from tests.engine.fakes import echo

ANSWER = echo("hello")
LONG = "one two three four " * 100
PATIENTLY = api.Sampling(repetition_penalty=1.0, max_tokens=2000)
CHECK_S = 3.0


@pytest.fixture
def pools() -> Iterator[Any]:
    made: list[PoolBench] = []

    def make(*arguments: Any, **settings: Any) -> PoolBench:
        made.append(PoolBench(*arguments, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def moves(bench: PoolBench, name: str = "s") -> list[api.Move]:
    told = [event for event in bench.events if isinstance(event, api.Moved)]
    return [event.move for event in told if event.session == name]


def test_a_session_stays_at_its_server(pools: Any) -> None:
    """Each of its requests goes there; several sessions are spread, none of them moves."""
    bench = pools()
    names = [f"s{n}" for n in range(12)]
    for number, name in enumerate(names, 1):
        bench.open_with_question(name, f"hello {name}")
        bench.tell(respond(number, name))
        bench.run()
    homes = {name: bench.home(name) for name in names}
    assert sorted({*homes.values()}) == [0, 1, 2]
    assert all(bench.status(n).sessions >= 2 for n in range(3))
    for number, name in enumerate(names, 21):
        bench.tell(api.AddItem(name, user_item(f"v{number}", "again")), respond(number, name))
        bench.run()
        assert bench.text(number) == echo("again")
    assert {name: bench.home(name) for name in names} == homes
    assert bench.seen("answer") == [2 * [*homes.values()].count(n) for n in range(3)]
    assert bench.of(api.Moved) == []


def test_one_killed_in_mid_answer_is_taken_over(pools: Any) -> None:
    """The answer goes on at another server, behind what had come; the session is told, the record
    says so, and nothing comes twice."""
    bench = pools(reply=lambda _: LONG)
    bench.open_with_question()
    killed = bench.home()
    bench.tell(respond(sampling=PATIENTLY))
    bench.until(lambda: len(bench.text()) > 20)
    bench.kill(killed)
    bench.run()
    assert bench.text() == LONG
    assert bench.finished().reason is api.FinishReason.STOP
    (move,) = moves(bench)
    assert move.from_url == bench.there[killed].url
    assert move.to_url == bench.there[bench.home()].url != move.from_url
    assert move.why in ("llm_unreachable", "llm_connection_lost")
    assert move.tokens > 0
    assert bench.finished().moves == (move,)
    assert bench.status(killed).state == "down"
    bench.tell(api.AddItem("s", user_item("v", "and now")), respond(2, sampling=PATIENTLY))
    bench.run()
    assert bench.text(2) == LONG
    assert bench.finished(2).moves == ()


def test_the_others_sessions_do_not_notice(pools: Any) -> None:
    """Those of the dead server move at once and are warm again before they are asked."""
    bench = pools()
    names = [f"s{n}" for n in range(9)]
    for name in names:
        bench.open_with_question(name)
    dead = bench.home("s0")
    lost = [name for name in names if bench.home(name) == dead]
    bench.kill(dead)
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(dead).state == "down")
    bench.run()
    told = [event for event in bench.events if isinstance(event, api.Moved)]
    assert {event.session for event in told} == set(lost)
    for name in lost:
        stream = bench.engine.sessions[name].stream
        assert stream.kv_len == len(stream), "read again, ahead of the next turn"
    for number, name in enumerate(names, 1):
        bench.tell(respond(number, name))
        bench.run()
        assert bench.text(number) == ANSWER
        assert bench.finished(number).usage.cached > 0


def test_one_that_drains_keeps_its_answer_and_loses_its_sessions(pools: Any) -> None:
    """/health says 503: the answer in flight is finished there, the next one is elsewhere."""
    bench = pools(reply=lambda _: LONG)
    bench.open_with_question()
    drained = bench.home()
    bench.tell(respond(sampling=PATIENTLY))
    bench.until(lambda: len(bench.text()) > 20)
    bench.there[drained].health = 503
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(drained).state == "draining")
    bench.run()
    assert bench.text() == LONG
    assert bench.seen("answer")[drained] == 1
    assert bench.backend.totals.retries == 0
    bench.until(lambda: bench.home() != drained)
    bench.run()
    (move,) = moves(bench)
    assert move.why == "draining"
    bench.tell(api.AddItem("s", user_item("v", "and now")), respond(2, sampling=PATIENTLY))
    bench.run()
    assert bench.text(2) == LONG
    assert bench.seen("answer")[drained] == 1
    assert bench.finished(2).moves == (move,)
    bench.there[drained].health = 200
    bench.until(lambda: bench.status(drained).state == "ready", pass_s=CHECK_S)
    assert bench.home() != drained, "who has moved stays"


def test_an_answer_that_stayed_does_not_warm_the_next_server(pools: Any) -> None:
    """An answer out of band moves the session while its own answer is still at the one that drains:
    what that one reads there is sent to the other one all the same."""
    bench = pools(count=2)
    bench.open_with_question()
    drained = bench.home()
    old, new = bench.there[drained], bench.there[1 - drained]
    old.hold("answer")
    bench.tell(respond())
    bench.until(lambda: len(old.of("answer")) == 1)
    old.health = 503
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(drained).state == "draining")
    aside = (user_item("q", "aside"),)
    bench.tell(api.Respond("s", 2, "x", GREEDY, instructions="Be brief.", items=aside))
    bench.until(lambda: bench.text(2) == echo("aside"))
    assert bench.home() != drained
    new.hold("warm-up")
    old.release()
    bench.until(lambda: any(e.generation == 1 for e in bench.of(api.Finished)))
    stream = bench.engine.sessions["s"].stream
    assert stream.kv_len == 0, "nothing of it is at the new one"
    new.release()
    bench.run()
    assert bench.text(1) == ANSWER
    assert [len(old.of("answer")), len(new.of("answer"))] == [1, 1]
    assert stream.kv_len == len(stream)
    assert [*stream.tokens] in [seen.prompt for seen in new.of("warm-up")]


def test_one_that_drained_and_was_started_again_takes_sessions(pools: Any) -> None:
    """As in each rolling restart: the drain ends with the process that drained."""
    bench = pools(count=2)
    bench.there[0].health = 503
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(0).state == "draining")
    bench.kill(0)
    bench.until(lambda: bench.status(0).state == "down", pass_s=0.5)
    bench.start(0)
    bench.until(lambda: bench.status(0).state == "ready", pass_s=0.5)
    for number in range(6):
        bench.open_with_question(f"s{number}")
    assert bench.status(0).sessions > 0


def checks(server: ScriptedServer, path: str) -> int:
    return sum(seen.path == path for seen in list(server.requests))


def test_one_that_gets_too_many_requests_does_not_drain(pools: Any) -> None:
    """/health says 429: it is there."""
    bench = pools(count=2)
    busy = bench.there[0]
    busy.health = 429
    bench.until(lambda: checks(busy, "/health") > 3, pass_s=CHECK_S)
    assert bench.status(0).state == "ready"


def test_one_that_lists_no_models_is_there(pools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no /health either, and answers 404 to each check."""
    bench = pools(count=2)
    bare = bench.there[0]
    monkeypatch.setattr(bare, "_get", lambda _: (404, {"detail": "Not Found"}))
    before = checks(bare, "/v1/models")
    bench.until(lambda: checks(bare, "/v1/models") > before + 4, pass_s=CHECK_S)
    assert bench.status(0).state == "ready"


def test_a_warm_up_that_finds_its_server_dead_is_sent_to_another(pools: Any) -> None:
    """At once: a session rests after a failed warm-up at the server that failed only."""
    bench = pools()
    bench.open_with_question()
    dead = bench.home()
    bench.kill(dead)
    bench.tell(api.AddItem("s", user_item("v", "and now")))
    bench.until(lambda: bench.backend.servers.of("s") is not None and bench.home() != dead)
    bench.run()
    stream = bench.engine.sessions["s"].stream
    assert stream.kv_len == len(stream)


def test_all_down_is_a_refusal_at_once(pools: Any) -> None:
    """Nothing hangs: the answer in flight fails by name, so does the next one, and a new session is
    told when to come again."""
    bench = pools()
    bench.open_with_question()
    for number in range(3):
        bench.kill(number)
    bench.tell(respond())
    bench.until(lambda: bool(bench.of(api.Finished)))
    assert bench.finished().code in ("llm_no_server", "llm_unreachable")
    bench.until(lambda: all(bench.status(n).state == "down" for n in range(3)), pass_s=0.1)
    bench.tell(respond(2))
    bench.run()
    assert bench.finished(2).code == "llm_no_server"
    assert "3 down" in bench.finished(2).message
    bench.tell(api.Open("late", "Hi"))
    bench.run()
    failures = [event for event in bench.events if isinstance(event, api.Failed)]
    (refused,) = [event for event in failures if event.session == "late"]
    assert (refused.about, refused.code) == ("open", "llm_no_server")
    assert refused.retry_after_s > 0
    bench.start(1)
    bench.until(lambda: bench.status(1).state == "ready", pass_s=0.5)
    bench.tell(respond(3))
    bench.run()
    assert bench.text(3) == ANSWER


def test_all_full_is_a_refusal(pools: Any) -> None:
    """One session at each, and no more; when one ends, the next is taken."""
    bench = pools(capacity=1)
    for name in ("a", "b", "c"):
        bench.open_with_question(name)
    assert sorted(bench.home(name) for name in ("a", "b", "c")) == [0, 1, 2]
    bench.tell(api.Open("d", "Hi"))
    (refused,) = [event for event in bench.events if isinstance(event, api.Failed)]
    assert (refused.code, refused.session) == ("llm_no_server", "d")
    assert "full" in refused.message
    assert "d" not in bench.engine.sessions
    bench.tell(api.Close("b"), api.Open("d", "Hi"))
    assert "d" in bench.engine.sessions


def test_full_memory_by_its_metrics_takes_no_session(pools: Any) -> None:
    """In vLLM's, SGLang's and llama.cpp's names."""
    bench = pools()
    bench.there[0].metrics = 'vllm:num_requests_waiting{e="0"} 1\nvllm:kv_cache_usage_perc 0.99\n'
    bench.there[1].metrics = "sglang:num_queue_reqs 0.0\nsglang:token_usage 1.0\n"
    bench.there[2].metrics = "# HELP x y\nllamacpp:requests_deferred 3\n"
    bench.pass_s(CHECK_S)
    bench.until(lambda: all(bench.status(n).waiting is not None for n in range(3)))
    assert [bench.status(n).waiting for n in range(3)] == [1, 0, 3]
    for number in range(6):
        bench.open_with_question(f"s{number}")
        assert bench.home(f"s{number}") == 2


def test_new_sessions_avoid_a_slow_one(pools: Any) -> None:
    """Requests pile up there, so others take more of the newcomers."""
    bench = pools()
    slow = bench.there[0]
    slow.hold("warm-up", "answer")
    for number in range(30):
        bench.tell(api.Open(f"s{number}", f"I am {number}"))
        bench.engine.step()
        bench.until(lambda: bench.status(1).in_flight + bench.status(2).in_flight == 0)
    counts = [bench.status(n).sessions for n in range(3)]
    assert 0 < counts[0] < 10, "its share would be 10"
    slow.release()
    bench.run()


def test_one_that_says_nothing_is_left(pools: Any) -> None:
    """Its connections stay open, as those of a stopped process do: checks notice, and the answer
    goes on elsewhere."""
    bench = pools(reply=lambda _: LONG, timeouts=Timeouts(5.0, 600.0, 600.0))
    bench.open_with_question()
    frozen = bench.home()
    bench.tell(respond(sampling=PATIENTLY))
    bench.until(lambda: len(bench.text()) > 20)
    bench.there[frozen].freeze()
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.finished_any())
    assert bench.text() == LONG
    assert moves(bench)[0].why == "llm_stalled"


def test_one_that_fails_again_and_again_is_left_for_a_while(pools: Any) -> None:
    """Its breaker opens; the answer moves, and after the cool-down it is asked what it can."""
    bench = pools()
    bench.open_with_question()
    failing = bench.home()
    bench.there[failing].faults.extend([Fault(status=500)] * 3)
    bench.tell(respond())
    bench.run()
    assert bench.text() == ANSWER
    assert bench.status(failing).state == "down"
    assert bench.status(failing).faults == 3
    assert moves(bench)[0].why == "llm_failed"
    bench.until(lambda: bench.status(failing).state == "ready", pass_s=0.5)


def test_tries_are_bounded_over_all_servers(pools: Any) -> None:
    """Each fails for good: at most three tries at each, then a named error."""
    bench = pools()
    bench.open_with_question()
    for server in bench.there:
        server.faults.extend([Fault(status=500)] * 20)
    bench.tell(respond())
    bench.run()
    assert bench.finished().code in ("llm_failed", "llm_no_server")
    assert sum(bench.seen("answer")) <= 9


def test_a_busy_one_is_no_fault(pools: Any) -> None:
    """429: the answer waits its turn there, where its prompt is cached."""
    bench = pools()
    bench.open_with_question()
    home = bench.home()
    bench.there[home].faults.append(Fault(status=429, headers="retry-after: 0\r\n"))
    bench.tell(respond())
    bench.run()
    assert (bench.text(), bench.home()) == (ANSWER, home)
    assert bench.status(home).faults == 0


def test_one_down_at_start_joins_later(pools: Any) -> None:
    """Its state is told; sessions go to the others until it is there."""
    bench = pools(down=(1,))
    assert [bench.status(n).state for n in range(3)] == ["ready", "down", "ready"]
    assert "no LLM server answers" in bench.status(1).reason
    for number in range(6):
        bench.open_with_question(f"s{number}")
    assert bench.status(1).sessions == 0
    bench.start(1)
    bench.until(lambda: bench.status(1).state == "ready", pass_s=0.5)
    for number in range(6, 12):
        bench.open_with_question(f"s{number}")
    assert bench.status(1).sessions > 0


def test_one_that_comes_back_as_another_stays_out(pools: Any) -> None:
    """It serves another model now: that is its reason, and nobody is sent there."""
    bench = pools()
    bench.open_with_question()
    home = bench.home()
    bench.kill(home)
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(home).state == "down")
    bench.start(home, models=("another",))
    bench.until(lambda: "must serve the same" in bench.status(home).reason, pass_s=0.5)
    assert bench.status(home).state == "down"
    bench.run()
    bench.tell(respond())
    bench.run()
    assert bench.text() == ANSWER
    assert bench.home() != home


def test_one_that_was_lost_and_is_back_has_nothing_cached(pools: Any) -> None:
    """With no other server in between: its sessions are read again."""
    bench = pools(count=2, down=(1,))
    bench.open_with_question()
    bench.kill(0)
    bench.pass_s(CHECK_S)
    bench.until(lambda: bench.status(0).state == "down")
    bench.start(0)
    bench.until(lambda: bench.status(0).state == "ready", pass_s=0.5)
    bench.until(lambda: len(moves(bench)) == 1, pass_s=0.5)
    bench.run()
    (move,) = moves(bench)
    assert move.from_url == move.to_url
    assert bench.seen("warm-up")[0] > 0


DIFFERENT = {
    "model": ({"models": ("another",)}, "model is 'scripted' at .* and 'another' at"),
    "context": ({"context_tokens": 2048}, "context is 4096 at .* and 2048 at"),
    "form": ({"dialect": "chat"}, "form of a conversation is 'prompts in tokens of ours' at"),
}


@pytest.mark.parametrize(("settings", "message"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_servers_that_differ_are_refused_at_start(settings: dict[str, Any], message: str) -> None:
    """By both addresses, what it is, and what each has."""

    def render(messages: list[dict[str, str]]) -> list[int]:
        return [t for m in messages for t in m["content"].encode()]

    with (
        scripted() as one,
        scripted(render=render, **settings) as other,
        pytest.raises(LlmServersDiffer, match=message) as no,
    ):
        find_servers([one.url, other.url], join)
    assert no.value.code == "llm_servers_differ"


def test_another_dialect_of_the_same_model_is_welcome() -> None:
    """Each is asked in its own way."""
    with scripted() as one, scripted(dialect=OPENAI) as other:
        found = find_servers([one.url, other.url], join)
    assert found[0].capabilities.prompt != found[1].capabilities.prompt


def test_one_of_several_that_fails_at_start_may_join_later() -> None:
    """The others serve; one alone is an error."""
    with scripted() as one, scripted() as broken:
        broken.faults.extend([Fault(kind="warm-up", status=500)] * 9)
        found = find_servers([one.url, broken.url], join)
        assert [server.known is not None for server in found] == [True, False]
        assert found[1].code == "llm_failed"
        with pytest.raises(LlmFailed):
            find_servers([broken.url], join)


class Unsent:
    """A client that sends nothing. `woken`: a join is over."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self._numbers = itertools.count(1)

    def send(self, request: object) -> int:
        return next(self._numbers)

    def cancel(self, call: int) -> None:
        pass

    def wake(self) -> None:
        self.woken.set()


@pytest.mark.parametrize("count", [1, 3])
def test_the_account_has_room_for_the_sessions_of_all_servers(count: int) -> None:
    """64 of 4,096 tokens at each, in blocks of 128."""
    found = [
        Server(url, known(Capabilities(url, "m"))) for url in (f"http://{n}" for n in range(count))
    ]
    servers = Servers(cast(HttpClient, Unsent()), found)
    backend = LlmServerBackend(cast(HttpClient, Unsent()), servers, lambda: 0)
    services = cast(ModelServices, SimpleNamespace(recognizer=None))
    parts = parts_of(services, backend, 4096, lambda: 0, EngineConfig())
    assert parts.pool.num_blocks == count * 64 * 32


def test_one_join_at_a_time() -> None:
    """Though what was in flight at a server that failed breaks while it is asked again."""
    may_end, asked, client = threading.Event(), queue.SimpleQueue[str](), Unsent()
    capabilities = [known(Capabilities(url, "m")) for url in ("http://a", "http://b")]

    def slow_join(url: str) -> Known:
        asked.put(url)
        assert may_end.wait(WAIT_S)
        return capabilities[0]

    found = [Server(each.capabilities.url, each) for each in capabilities]
    servers = Servers(cast(HttpClient, client), found, slow_join)
    bad, now_ns = found[0], 0
    for _ in range(4):
        servers.began(bad)
    for _ in range(3):
        servers.finished(bad, now_ns, LlmFailed(500, "broken"))
    assert [each.state for each in servers] == [NodeState.DOWN, NodeState.READY]
    now_ns += 2 * SECOND_NS
    servers.check(now_ns)
    assert asked.get(timeout=WAIT_S) == "http://a"
    servers.finished(bad, now_ns, LlmUnreachable("http://a", "gone"))
    for _ in range(5):
        now_ns += 20 * SECOND_NS
        servers.check(now_ns)
    assert bad.joining
    may_end.set()
    assert client.woken.wait(WAIT_S)
    servers.check(now_ns)
    assert [each.state for each in servers] == [NodeState.READY, NodeState.READY]
    assert asked.empty()


def test_none_at_start_is_an_error() -> None:
    """After the time to wait."""
    with scripted() as gone:
        pass
    with pytest.raises(LlmUnreachable):
        find_servers([gone.url], join, wait_s=0.0)


def test_a_wait_at_start_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the address that nobody answers at; and what is reported meanwhile stays the same, for
    each change is a line in the terminal."""
    with scripted() as gone:
        pass
    reported: list[str] = []

    def report(what: str, _done: int, _total: int) -> None:
        reported.append(what)

    def ask(url: str) -> Known:
        return known(find_out(url, None, Bytes(), wait_s=0.0, report=report))

    with pytest.raises(LlmUnreachable):
        find_servers([gone.url], ask, report, wait_s=2.5)
    assert len(reported) >= 2
    assert set(reported) == {"waiting for the LLM server (llm_unreachable)"}
    (line,) = [record.getMessage() for record in caplog.records if gone.url in record.getMessage()]
    assert "no LLM server answers at" in line
