"""Responses asked for, cancelled and counted."""

from __future__ import annotations

import pytest

from engine import api
from gateway.answers import MAX_ASIDE
from tests.gateway.session_bench import SessionBench


def test_cancel_by_id_reaches_answers_out_of_band() -> None:
    """response_id names any response that runs; without one the conversation's is meant."""
    bench = SessionBench()
    bench.client("response.create", response={"conversation": "none"})
    aside = bench.last("response.created")["response"]["id"]
    bench.client("response.cancel")
    assert bench.error()["code"] == "response_cancel_not_active"
    bench.client("response.cancel", response_id=aside)
    assert bench.commands(api.Cancel)[0].generation == bench.respond_command().generation


def test_a_second_cancel_changes_nothing() -> None:
    """The engine is told once."""
    bench = SessionBench()
    bench.client("response.create")
    bench.client("response.cancel")
    bench.client("response.cancel")
    assert len(bench.commands(api.Cancel)) == 1
    assert not bench.of("error")


def test_answers_out_of_band_have_a_bound() -> None:
    """One too many is refused by name; the others go on."""
    bench = SessionBench()
    for _ in range(MAX_ASIDE + 1):
        bench.client("response.create", response={"conversation": "none"})
    assert len(bench.commands(api.Respond)) == MAX_ASIDE
    assert bench.error()["code"] == "rate_limit_exceeded"


def test_usage_reaches_the_client() -> None:
    """What the head start saved is in cached_tokens."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.")
    usage = bench.last("response.done")["response"]["usage"]
    assert usage["input_token_details"]["audio_tokens"] == 7
    assert usage["input_token_details"]["cached_tokens"] == 10


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (api.FinishReason.LENGTH, "incomplete"),
        (api.FinishReason.FAILED, "failed"),
        (api.FinishReason.CANCELLED, "cancelled"),
    ],
)
def test_the_session_goes_on_after_every_end(reason: api.FinishReason, status: str) -> None:
    """However one answer ended, the next can begin."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.", reason=reason)
    assert bench.last("response.done")["response"]["status"] == status
    bench.client("response.create")
    bench.answer("Again.")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_metrics_count_turns_and_first_tokens() -> None:
    """/metrics shows the turn, its tokens and its time to first token."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.")
    text = bench.metrics.render().decode()
    assert 'headstart_turns_total{reason="stop"} 1.0' in text
    assert 'headstart_ttft_ms_count{anchor="requested"} 1.0' in text
    assert 'headstart_tokens_total{kind="cached"} 10.0' in text
