from typing import get_args

import pytest
from pydantic import BaseModel

from gateway.protocol import limits
from gateway.protocol.parse import _MODELS
from gateway.protocol.schema import strict


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
    for model in _MODELS.values():
        _models_below(strict(model), seen)
    return {f"{model.__name__}.{name}" for model in seen for name in model.model_fields} | {
        name for model in seen for name in model.model_fields
    }


@pytest.mark.parametrize("key", limits.LIMITS)
def test_every_limit_belongs_to_a_field(key: str, fields: set[str]) -> None:
    """A misspelt row, or one for a field the library renamed, would silently hold nothing."""
    assert key in fields


def test_a_full_append_fits_an_event() -> None:
    """15 MiB in base64, with room for the rest of the event."""
    assert limits.MAX_AUDIO_BYTES * 4 // 3 + 1024 < limits.MAX_EVENT_CHARS
