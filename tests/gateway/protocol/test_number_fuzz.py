"""Every number that a client can send, as anything that JSON can hold in its place."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.protocol import limits
from headstart.gateway.telemetry.latency import MAX_NETWORK_NS
from tests.gateway.protocol.samples import FULL
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm
from tests.gateway.shell_fakes import running_gateway

# With what stands in no sample, or in one of several shapes that exclude each other.
VAD = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300}
VAD |= {"silence_duration_ms": 200, "idle_timeout_ms": 5000}
OURS = {
    "sampling": {"temperature": 1, "top_p": 1, "top_k": 5, "repetition_penalty": 1.1, "seed": 1},
    "video": {"sampler": "scene", "scale": 1, "fps": 1, "motion": 0.1, "scene": 30, "flow": 0.5}
    | {"max_gap_ms": 1000, "min_frames": 2, "max_frames": 5},
    "window": {"tokens": 1000, "vision_tokens": 500},
    "latency_budget_ms": 800,
}
OURS["sampling"]["max_sentences"] = 2  # type: ignore[index]
EVENTS: list[dict[str, Any]] = [
    {"type": "session.update", "session": {"type": "realtime", "gateway": OURS}},
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "max_output_tokens": 100,
            "truncation": {
                "type": "retention_ratio",
                "retention_ratio": 0.5,
                "token_limits": {"post_instructions": 500},
            },
            "audio": {
                "input": {
                    "turn_detection": VAD,
                    "noise_reduction": {"type": "near_field", "strength": 1},
                },
                "output": {"speed": 1},
            },
        },
    },
    {"type": "response.create", "response": {"max_output_tokens": 100}},
    {
        "type": "conversation.item.truncate",
        "item_id": "item_1",
        "content_index": 0,
        "audio_end_ms": 100,
    },
    {"type": "input_audio_buffer.append", "audio": "AAAA" * 16, "captured_at_ms": 1000},
    {"type": "input_image_buffer.append", "image": "AAAA", "timestamp_ms": 1000},
    {
        "type": "gateway.playout.started",
        "response_id": "resp_1",
        "delay_ms": 10,
        "played_at_ms": 1000,
    },
    *FULL,
]
NO_EVENT = {"expires_after.seconds", "RealtimeMcpProtocolError.code", "RealtimeMcphttpError.code"}


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all numbers in a value."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*way, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield way


PLACES = [(event, way) for event in EVENTS for way in places(event)]

ODD = [
    *("NaN", "Infinity", "-Infinity", "1e305", "-1e305", "1e999", "-0", "-0.0", "0"),
    *("1.0", "0.5", "1e2", "true", "false", '"1"', "[]", "{}", "5e-324", "100.0"),
    *("9" * 400, "-" + "9" * 400, "9" * 5000, str(2**63), str(2**53)),
]
NUMBERS = st.one_of(
    st.sampled_from([*ODD, "null"]),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            repr(end + step)
            for span in limits.RANGES.values()
            for end in (span.least, span.most)
            for step in (-1, -0.001, 0, 0.001, 1)
        ]
    ),
)


def with_number(event: dict[str, Any], way: tuple[Any, ...], number: str) -> str:
    """The event's text with `number` at that place."""
    copy = json.loads(json.dumps(event))
    node = copy
    for key in way[:-1]:
        node = node[key]
    node[way[-1]] = "\0here"
    return json.dumps(copy).replace('"\\u0000here"', number)


def test_every_range_is_fuzzed() -> None:
    """A row of the table that no event here holds would be held by nothing."""
    names = {way[-1] for _, way in PLACES}
    assert set(limits.RANGES) - NO_EVENT <= names


def test_each_number_may_be_anything_odd() -> None:
    """Every place, one after the other, with every value that has hurt somebody before."""
    bench = SessionBench()
    for event, way in PLACES:
        for number in ODD:
            bench.update(gateway={})
            bench.clear()
            bench.raw(with_number(event, way, number))
            assert len(bench.of("error")) <= 1
            for asked in bench.commands(api.Respond):
                bench.finish(asked.generation, "")
    assert not bench.hangups


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), NUMBERS), max_size=12))
def test_no_number_ends_a_session(
    given: list[tuple[tuple[dict[str, Any], tuple[Any, ...]], str]],
) -> None:
    """Each event works or is refused by one named error; the session then hears and answers, and
    what it says of itself is JSON."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency", "chunks"]})
    bench.clear()
    for (event, way), number in given:
        bench.raw(with_number(event, way, number))
        errors = bench.of("error")
        assert len(errors) <= 1
        if errors and errors[0]["error"]["type"] == "invalid_request_error":
            assert errors[0]["error"]["message"]
        for asked in bench.commands(api.Respond):
            bench.finish(asked.generation, "")
        bench.clear()
        bench.hear(silence_pcm(20))  # what was taken is used
    assert not bench.hangups
    json.dumps(bench.session.describe(), allow_nan=False)
    bench.client("response.create")
    bench.answer("Yes.")
    assert bench.of("response.done")


@pytest.mark.parametrize("stamp", ["1e305", "-1e305", str(2**53), "1e16", "-1"])
def test_a_clock_that_cannot_be_is_refused_by_name(stamp: str) -> None:
    """Also on the short way; the next packet is heard."""
    bench = SessionBench()
    bench.update(gateway={})
    text = '{"type": "input_audio_buffer.append", "audio": "AAAAAAAA", "captured_at_ms": %s}'
    assert not bench.sound(text % stamp)
    bench.raw(text % stamp)
    assert (bench.error()["code"], bench.error()["param"]) == ("invalid_value", "captured_at_ms")
    assert bench.sound(text % "1000")


def test_stamps_at_the_ends_of_their_range_are_used() -> None:
    """The clock jumps from one end to the other in mid-speech: the turn is answered, and its budget
    counts from what is possible."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    pcm = clip_pcm("capital.wav") + silence_pcm(700)
    span = limits.RANGES["captured_at_ms"]
    for number, start in enumerate(range(0, len(pcm), 960)):
        bench.now_ns += 20_000_000
        audio = base64.b64encode(pcm[start : start + 960]).decode()
        stamp = (span.least, span.most)[number % 2]
        bench.client("input_audio_buffer.append", audio=audio, captured_at_ms=stamp)
    bench.answer("Paris.")
    total_ms = bench.last("gateway.latency.report")["budget"]["total_ms"]
    assert 0 <= total_ms <= MAX_NETWORK_NS / 1e6 + 1000


async def test_a_client_secret_s_lifetime_has_its_range() -> None:
    """A secret for whole seconds in range, else a 400 that names the field."""
    span = limits.RANGES["expires_after.seconds"]
    ends = [f"{end + step:.0f}" for end in (span.least, span.most) for step in (-1, 0, 1)]
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        for number in [*ODD, *ends]:
            body = f'{{"expires_after": {{"anchor": "created_at", "seconds": {number}}}}}'
            answer = await http.post("/v1/realtime/client_secrets", content=body)
            whole = number.isdigit() and span.holds(int(number)) if len(number) < 9 else False
            assert answer.status_code == (200 if whole else 400), (number, answer.text)
            if number.lstrip("-").isdigit() and len(number) < 4000:
                assert answer.json().get("error", {}).get("param") in (
                    None if whole else "expires_after.seconds",
                )
