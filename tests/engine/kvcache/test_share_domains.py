"""Share domains: sessions of different domains never learn what the others have computed."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.engine.commands import GREEDY, user_item
from tests.engine.fakes import Bench, echo

PROMPT = "the same long prompt, word for word, that somebody else has sent before"


def cached_tokens(bench: Bench, name: str, domain: bytes, *, aside: bool) -> int:
    """`cached_tokens` of an answer to `PROMPT` in a new session of that domain."""
    bench.tell(api.Open(name, "Hi", share_domain=domain))
    bench.run()
    items = (user_item("q", PROMPT),) if aside else None
    if not aside:
        bench.tell(api.AddItem(name, user_item("q", PROMPT)))
    bench.tell(api.Respond(name, 1, "a", GREEDY, items=items))
    bench.run()
    finished = bench.of(api.Finished)[-1]
    assert isinstance(finished, api.Finished)
    assert finished.text == echo(PROMPT)
    return finished.usage.cached


def adopted(bench: Bench, name: str) -> int:
    return bench.engine.sessions[name].stream.adopted_tokens


@pytest.mark.parametrize("other", [b"two", b""])
def test_the_same_prompt_in_another_domain_is_not_cached(other: bytes) -> None:
    """`cached_tokens` is 0 in another domain, however often the prompt was sent; within a domain it
    is not. Sessions without a domain share one."""
    bench = Bench(max_cached=64)
    assert cached_tokens(bench, "a", b"one", aside=True) == 0
    assert cached_tokens(bench, "b", b"one", aside=True) > 16
    assert cached_tokens(bench, "c", other, aside=True) == 0
    assert cached_tokens(bench, "d", other, aside=True) > 16


def test_without_domains_all_share() -> None:
    """Sessions without a domain share with each other."""
    bench = Bench(max_cached=64)
    assert cached_tokens(bench, "a", b"", aside=True) == 0
    assert cached_tokens(bench, "b", b"", aside=True) > 16


def test_a_conversation_is_as_private_as_what_is_out_of_band() -> None:
    """Its own stream adopts nothing of another domain's; of its own, it does. An out-of-band prompt
    in one session is found by the conversation of another only within the domain."""
    bench = Bench(max_cached=64)
    cached_tokens(bench, "a", b"one", aside=False)
    cached_tokens(bench, "b", b"two", aside=False)
    assert adopted(bench, "b") == 0
    cached_tokens(bench, "c", b"one", aside=False)
    assert adopted(bench, "c") > 16
    assert bench.engine.kv_accounting().shared_blocks > 0


def test_a_session_that_is_opened_again_keeps_its_domain() -> None:
    """After an engine restart a restored conversation is computed in the domain it is opened with,
    and so are forks of its stream."""
    bench = Bench(max_cached=64)
    cached_tokens(bench, "a", b"one", aside=False)
    item = user_item("q", PROMPT)
    bench.tell(api.Open("b", "Hi", (item,), share_domain=b"two"))
    bench.run()
    stream = bench.engine.sessions["b"].stream
    assert stream.adopted_tokens == 0
    assert stream.fork("fork").share_domain == stream.share_domain == b"two"
