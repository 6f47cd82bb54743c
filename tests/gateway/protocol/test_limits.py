import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from headstart.gateway.protocol import limits
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.extensions import TimedAudioAppend
from headstart.gateway.protocol.parse import _MODELS, parse_client_event
from headstart.gateway.protocol.schema import strict


def _models_below(model: type[BaseModel], seen: set[type[BaseModel]]) -> None:
    if model in seen:
        return
    seen.add(model)
    for field in model.model_fields.values():
        _models_in(field.annotation, seen)


def _models_in(annotation: object, seen: set[type[BaseModel]]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        _models_below(annotation, seen)
    for argument in get_args(annotation):
        _models_in(argument, seen)


@pytest.fixture(scope="module")
def fields() -> set[str]:
    """Every field of every strict model that a client event can hold: "name", "Class.name"."""
    seen: set[type[BaseModel]] = set()
    for model in (*_MODELS.values(), TimedAudioAppend):
        _models_below(strict(model), seen)
    return {f"{model.__name__}.{name}" for model in seen for name in model.model_fields} | {
        name for model in seen for name in model.model_fields
    }


@pytest.mark.parametrize("key", [*limits.LIMITS, *limits.RANGES])
def test_every_limit_belongs_to_a_field(key: str, fields: set[str]) -> None:
    """A misspelt row, or one for a field the library renamed, would silently hold nothing."""
    assert key in fields or key == "expires_after.seconds"


def _is_number(annotation: object) -> bool:
    return annotation in (int, float) or any(map(_is_number, get_args(annotation)))


def test_every_number_of_a_client_s_has_its_range() -> None:
    """Whoever adds a field has to say what it may be."""
    seen: set[type[BaseModel]] = set()
    for model in (*_MODELS.values(), TimedAudioAppend):
        _models_below(strict(model), seen)
    without = [
        f"{model.__name__}.{name}"
        for model in seen
        for name, field in model.model_fields.items()
        if _is_number(field.annotation)
        and not {name, f"{model.__name__}.{name}"} & set(limits.RANGES)
    ]
    assert without == []


def test_the_readme_has_the_table_of_ranges() -> None:
    """Row by row, as it is in force."""
    text = (Path(limits.__file__).parent / "README.md").read_text()
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| `")]
    told = {cells[0].strip(" `"): cells[1].strip() for cells in rows}
    for name, span in limits.RANGES.items():
        assert told[name] == f"{span.least:,} to {span.most:,}", name


_VAD = "session.audio.input.turn_detection"

RANGES: list[tuple[str, dict[str, Any], float, float, float]] = [
    # the field, what its object needs beside it, lowest and highest allowed, a step beyond
    (f"{_VAD}.threshold", {"type": "server_vad"}, 0, 1, 0.001),
    (f"{_VAD}.prefix_padding_ms", {"type": "server_vad"}, 0, 10_000, 1),
    (f"{_VAD}.silence_duration_ms", {"type": "server_vad"}, 40, 60_000, 1),
    (f"{_VAD}.idle_timeout_ms", {"type": "server_vad"}, 1_000, 600_000, 1),
    ("session.audio.input.noise_reduction.strength", {}, 0, 1, 0.001),
    ("session.audio.output.speed", {}, 0.25, 1.5, 0.001),
    ("session.max_output_tokens", {}, 1, 4096, 1),
    ("session.truncation.retention_ratio", {"type": "retention_ratio"}, 0, 1, 0.001),
    ("session.gateway.sampling.temperature", {}, 0, 2, 0.001),
    ("session.gateway.sampling.top_p", {}, 0, 1, 0.001),
    ("session.gateway.sampling.repetition_penalty", {}, 0.1, 10, 0.001),
    ("session.gateway.sampling.seed", {}, 0, limits.MAX_INTEGER, 1),
    ("session.gateway.latency_budget_ms", {}, 1, 600_000, 1),
]


def _update(path: str, beside: dict[str, Any], value: float | str) -> str:
    *way, last = path.split(".")
    event: dict[str, Any] = {"type": "session.update", "session": {"type": "realtime"}}
    parent = event
    for step in way:
        parent = parent.setdefault(step, {})
    parent |= beside | {last: value}
    return json.dumps(event)


@pytest.mark.parametrize(("path", "beside", "lowest", "highest", "step"), RANGES)
def test_ranges_include_their_ends_and_nothing_beyond(
    path: str, beside: dict[str, Any], lowest: float, highest: float, step: float
) -> None:
    """Both ends pass; a step beyond either is an invalid value of that very field."""
    for value in (lowest, highest):
        parse_client_event(_update(path, beside, value))
    for value in (lowest - step, highest + step):
        with pytest.raises(ProtocolError) as caught:
            parse_client_event(_update(path, beside, value))
        assert (caught.value.code, caught.value.param) == ("invalid_value", path)


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("session.instructions", limits.MAX_STRING_CHARS),
        ("session.audio.input.transcription.model", limits.MAX_STRING_CHARS),
    ],
)
def test_strings_without_a_limit_of_their_own_have_the_common_one(path: str, limit: int) -> None:
    """So that no echo outgrows a frame."""
    parse_client_event(_update(path, {}, "x" * limit))
    with pytest.raises(ProtocolError) as caught:
        parse_client_event(_update(path, {}, "x" * (limit + 1)))
    assert (caught.value.code, caught.value.param) == ("string_above_max_length", path)


def test_a_full_append_fits_an_event() -> None:
    """15 MiB in base64, with room for the rest of the event."""
    assert limits.MAX_AUDIO_BYTES * 4 // 3 + 1024 < limits.MAX_EVENT_CHARS
