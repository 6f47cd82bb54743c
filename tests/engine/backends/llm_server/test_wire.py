"""Replies that no server should send: each is a named error, or a number that was not told."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine import api
from headstart.engine.backends.llm_server.errors import LlmBusy, LlmGarbage, LlmServerError
from headstart.engine.backends.llm_server.http_client import HttpClient, HttpRequest, refusal
from headstart.engine.backends.llm_server.wire import Piece, probability, read
from tests.engine.backends.llm_server.bench import WAIT_S

NUMBERS = ["1e999", "-1e999", "NaN", "-1", "1e300", '"x"', "[]", "null", "true", "7"]
FIELDS = {
    "tokens of the prompt": '{"choices": [], "usage": {"prompt_tokens": %s}}',
    "cached tokens": '{"choices": [], "timings": {"cache_n": %s}}',
    "prefill time": '{"choices": [], "timings": {"prompt_ms": %s}}',
    "ids": '{"choices": [{"text": "a", "token_ids": [%s]}]}',
    "ids with probabilities": '{"choices": [{"text": "a", "logprobs": {"content": [{"id": %s}]}}]}',
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS.keys())
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_are_none_are_garbage_or_left_out(field: str, number: str) -> None:
    """JSON as Python reads it has infinities, too."""
    try:
        piece = read(json.loads(field % number))
    except LlmGarbage:
        return
    counts = [piece.prompt_tokens, piece.cached_tokens, *(piece.ids or ())]
    assert all(count is None or count >= 0 for count in counts)
    assert piece.prompt_ms is None or 0 <= piece.prompt_ms < float("inf")


def test_a_count_of_minus_one_is_not_told() -> None:
    """So some servers say that they do not count."""
    piece = read({"choices": [], "usage": {"prompt_tokens": -1}, "timings": {"prompt_ms": -1}})
    assert (piece.prompt_tokens, piece.prompt_ms) == (None, None)


def test_halves_of_characters_can_be_encoded() -> None:
    """JSON may spell them, and events and tokenizers take none."""
    half = '"a\\ud83d"'
    assert read(json.loads(f'{{"choices": [{{"text": {half}}}]}}')).text == "a\ufffd"
    error = refusal(400, {}, f'{{"error": {half}}}'.encode(), None)
    assert api.encode(api.Failed("s", "audio", error.code, str(error)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["choices", "usage", "timings", "error", "model"]), JSON))
def test_any_object_is_read_or_a_named_error(piece: dict[str, Any]) -> None:
    """Nothing else leaves `read`, whatever a server sends."""
    with contextlib.suppress(LlmServerError):
        read(piece)


@pytest.mark.parametrize("logprob", [float("nan"), float("inf"), 1e9, "x", None])
def test_a_probability_that_is_none(logprob: Any) -> None:
    """A named error, but for infinity, which is cut to 1 where it is used."""
    told = {"content": [{"top_logprobs": [{"id": 7, "logprob": logprob}]}]}
    if logprob == float("inf"):
        assert probability(Piece(logprobs=told), 7, "") == float("inf")
        return
    with pytest.raises(LlmGarbage):
        probability(Piece(logprobs=told), 7, "")


@pytest.mark.parametrize("after", ["nan", "inf", "-inf", "-3", "soon", ""])
def test_a_time_to_wait_that_is_none_is_no_wait(after: str) -> None:
    """As if the header were not there."""
    error = refusal(429, {"retry-after": after}, b"", None)
    assert isinstance(error, LlmBusy)
    assert error.retry_after_s == 0


def test_a_request_that_is_cancelled_before_it_began_is_forgotten() -> None:
    """Its task never runs."""
    client, held, done = HttpClient(), threading.Event(), threading.Event()
    client._loop.call_soon_threadsafe(held.wait)
    call = client.send(HttpRequest("http://127.0.0.1:9/"))
    client.cancel(call)
    held.set()

    def when_forgotten() -> None:
        if client._tasks:
            client._loop.call_later(0.01, when_forgotten)
        else:
            done.set()

    client._loop.call_soon_threadsafe(when_forgotten)
    assert done.wait(WAIT_S), "its task is kept"
    assert client.take() == []
    client.close()
