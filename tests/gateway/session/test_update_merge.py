"""One `session.update` after the other: what is in force is the documented merge, whatever was in
force before."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.session_bench import Json, SessionBench

SERVER_VAD: Json = {"threshold": 0.7, "prefix_padding_ms": 120, "silence_duration_ms": 710}
SERVER_VAD |= {"idle_timeout_ms": None, "create_response": True, "interrupt_response": True}
DEFAULTS: dict[str, Json] = {
    "server_vad": SERVER_VAD,
    "semantic_vad": {"eagerness": "auto", "create_response": True, "interrupt_response": True},
}


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def typed(type_: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return some(**fields).map(lambda given: {"type": type_, **given})


FLAGS = {"create_response": st.booleans(), "interrupt_response": st.booleans()}
TURNS = st.one_of(
    st.none(),
    typed(
        "server_vad",
        threshold=st.sampled_from([0.1, 0.5]),
        prefix_padding_ms=st.sampled_from([0, 300]),
        silence_duration_ms=st.sampled_from([200, 900]),
        idle_timeout_ms=st.sampled_from([None, 5000]),
        **FLAGS,
    ),
    typed("semantic_vad", eagerness=st.sampled_from(["low", "high"]), **FLAGS),
)
INPUT = some(
    turn_detection=TURNS,
    transcription=st.none() | some(model=st.sampled_from("ab"), language=st.sampled_from("xy")),
    noise_reduction=st.none() | typed("near_field", strength=st.sampled_from([0.25, 0.5])),
)
NESTED = {
    "sampling": some(temperature=st.sampled_from([0.5, 1.5]), top_k=st.sampled_from([1, 9])),
    "video": some(fps=st.sampled_from([1.0, 2.0]), max_frames=st.sampled_from([3, 4])),
    "window": some(tokens=st.sampled_from([500, 900]), summarise=st.booleans()),
}
OURS = st.none() | some(chunk_ms=st.sampled_from([200, 1000]), **NESTED)
UPDATES = some(audio=st.builds(lambda given: {"input": given}, INPUT), gateway=OURS)


def merged_turns(now: Json | None, given: Json | None) -> Json | None:
    if given is None:
        return None
    same = now is not None and now["type"] == given["type"]
    base = now if same and now is not None else DEFAULTS[given["type"]]
    return {**base, **given}


def merged(now: Json | None, given: Json | None) -> Json | None:
    """Of an object without a type: null clears it."""
    return None if given is None else {**(now or {}), **given}


def merged_ours(now: Json | None, given: Json | None) -> Json | None:
    result = merged(now, given)
    if result is not None and given is not None and "sampling" in given:
        # The others are replaced whole.
        result["sampling"] = merged((now or {}).get("sampling"), given["sampling"])
    return result


@settings(max_examples=200, deadline=None)
@given(st.lists(UPDATES, max_size=8))
def test_what_is_in_force_is_the_documented_merge(updates: list[Json]) -> None:
    """Absent keys keep their value, null clears, and another type, or one after null, begins with
    its defaults: for `server_vad` those of the server's settings."""
    bench = SessionBench(silence_ms=710, vad_threshold=0.7, pre_roll_ms=120)
    wanted: Json = {"turn_detection": {"type": "server_vad", **SERVER_VAD}}
    wanted |= {"transcription": None, "noise_reduction": None}
    ours: Json | None = None
    for update in updates:
        bench.update(**update)
        given = update.get("audio", {}).get("input", {})
        for name, value in given.items():
            merge = merged_turns if name == "turn_detection" else merged
            wanted[name] = merge(wanted[name], value)
        if "gateway" in update:
            ours = merged_ours(ours, update["gateway"])
        session = bench.last("session.updated")["session"]
        in_force = session["audio"]["input"]
        assert {name: in_force[name] for name in wanted} == wanted
        assert session.get("gateway") == ours
        assert bench.session.describe() == session


def test_server_vad_begins_with_the_server_s_own_silence() -> None:
    """After null and after the other type, as at the beginning."""
    for before in (None, {"type": "semantic_vad"}):
        bench = SessionBench(silence_ms=500)
        bench.update(audio={"input": {"turn_detection": before}})
        bench.update(audio={"input": {"turn_detection": {"type": "server_vad"}}})
        turns = bench.last("session.updated")["session"]["audio"]["input"]["turn_detection"]
        assert turns["silence_duration_ms"] == 500
