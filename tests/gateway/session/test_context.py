"""What the parts of a session share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.session_bench import SessionBench


def sampling(bench: SessionBench, **response: Any) -> Any:
    bench.client("response.create", response=response)
    return bench.respond_command().sampling


def test_sampling_comes_from_server_session_and_response() -> None:
    """Each narrows the one before: server's defaults, session.gateway, the response's limit."""
    bench = SessionBench(temperature=0.3, max_output_tokens=100)
    bench.update(gateway={"sampling": {"temperature": 0.7, "seed": 5}})
    chosen = sampling(bench, max_output_tokens=50)
    assert (chosen.temperature, chosen.seed, chosen.max_tokens) == (0.7, 5, 50)


@pytest.mark.parametrize(("asked", "given"), [("inf", 100), (4096, 100), (7, 7)])
def test_answers_are_never_longer_than_the_server_allows(asked: int | str, given: int) -> None:
    """ "inf" and larger numbers mean the server's own limit."""
    bench = SessionBench(max_output_tokens=100)
    assert sampling(bench, max_output_tokens=asked).max_tokens == given


def test_only_chosen_events_of_ours_are_wanted() -> None:
    """A session hears of what it listed and of nothing else."""
    bench = SessionBench()
    bench.update(gateway={"events": ["engine"]})
    bench.engine_lost()
    assert [t for t in bench.types() if t.startswith("gateway.")] == ["gateway.engine.status"]
