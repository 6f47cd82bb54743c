"""Strict versions of the `openai` package's types.

Those types are written for reading a trusted server's events: they keep unknown keys, coerce
values, have no ranges, and try a union's members one after the other. `strict(Model)` derives a
subclass that refuses unknown keys, coerces nothing, applies `limits.LIMITS`, and picks a union's
member by the value's JSON kind, then by its `type`, then by its `role`, so that an error names one
field. A validated event is therefore an instance of the library's type.

"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from openai.types.realtime import ConversationItem
from openai.types.realtime.response_item_reference import ResponseItemReference
from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, Strict, Tag
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from headstart.gateway.protocol import limits
from headstart.gateway.protocol.extensions import GatewaySession, GatewayTranscriptionSession

# Union tags appear in pydantic's error locations between the keys; none of our keys begins like
# this.
TAG_PREFIX = "\0"
# pydantic's error type for a value that fits no member of a union; its context says what would fit.
NO_MEMBER = "no_member"

_ModelT = TypeVar("_ModelT", bound=BaseModel)
_STRICT = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    str_max_length=limits.MAX_STRING_CHARS,
    defer_build=False,
)
_SCALAR_KINDS: dict[Any, str] = {str: "string", int: "integer", float: "decimal", bool: "boolean"}
# Fields whose annotation in the library is weaker than its documentation.
_ANNOTATIONS: dict[str, Any] = {
    "SessionUpdateEvent.session": Union[  # noqa: UP007  read like the library's own
        GatewaySession, GatewayTranscriptionSession
    ],
    "RealtimeResponseCreateParams.input": list[
        Union[ConversationItem, ResponseItemReference]  # noqa: UP007  an Annotated has no |
    ]
    | None,
    "RealtimeResponseCreateParams.metadata": Annotated[
        dict[
            Annotated[str, MaxLen(limits.MAX_METADATA_KEY_CHARS)],
            Annotated[str, MaxLen(limits.MAX_METADATA_VALUE_CHARS)],
        ],
        MaxLen(limits.MAX_METADATA_PAIRS),
    ]
    | None,
}


class _StopAtFirst:
    """Marks an array whose validation stops at its first error, so that one event cannot cause
    thousands of errors. (pydantic's own marker cannot be used in a union, as it has no hash.)"""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = dict(handler(source))
        assert schema["type"] == "list"
        return cast(core_schema.CoreSchema, schema | {"fail_fast": True})


_STOP_AT_FIRST = _StopAtFirst()


@functools.cache
def strict(model: type[_ModelT]) -> type[_ModelT]:
    """The strict subclass of a library model, with the same name. Built once per model."""
    annotations: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__module__": __name__, "model_config": _STRICT}
    for name, field in model.model_fields.items():
        annotations[name] = _field_annotation(model.__name__, name, field)
        if not field.is_required():
            namespace[name] = field.default
    namespace["__annotations__"] = annotations
    derived = types.new_class(model.__name__, (model,), exec_body=lambda ns: ns.update(namespace))
    return cast(type[_ModelT], derived)


def _field_annotation(owner: str, name: str, field: FieldInfo) -> Any:
    qualified = f"{owner}.{name}"
    annotation = _ANNOTATIONS.get(qualified, field.annotation)
    bounds = limits.LIMITS.get(qualified, limits.LIMITS.get(name, ()))
    span = limits.RANGES.get(qualified, limits.RANGES.get(name))
    return _convert(annotation, bounds if span is None else span.marks)


def _convert(annotation: Any, bounds: Sequence[Any] = ()) -> Any:
    """The strict counterpart of one annotation; `bounds` apply to its scalars and arrays."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _convert_annotated(annotation, bounds)
    if origin in (Union, types.UnionType):
        return _convert_union(_members(annotation), bounds)
    if origin is list:
        return _bounded(list[_convert(get_args(annotation)[0])], (_STOP_AT_FIRST, *bounds))  # type: ignore[misc]
    if origin is dict:
        key, value = (_convert(arg) for arg in get_args(annotation))
        return _bounded(dict[key, value], bounds)  # type: ignore[valid-type]
    if annotation is object:
        return Any
    if annotation in _SCALAR_KINDS:
        return _bounded(annotation, (Strict(), *bounds))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return strict(annotation)
    return annotation  # a Literal


def _convert_annotated(annotation: Any, bounds: Sequence[Any]) -> Any:
    """Drop the library's own constraints; bounds, which only our types have, take precedence."""
    inner, *marks = get_args(annotation)
    own = [mark for mark in marks if isinstance(mark, (MaxLen, MinLen, Ge, Le))]
    return _convert(inner, own or bounds)


def _bounded(annotation: Any, bounds: Sequence[Any]) -> Any:
    return functools.reduce(lambda inner, bound: Annotated[inner, bound], bounds, annotation)


# --- unions -------------------------------------------------------------------------------------


def _members(annotation: Any) -> list[Any]:
    """A union's members with nested unions flattened; a member with its own bounds keeps them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        bounded = any(isinstance(mark, (MaxLen, MinLen, Ge, Le)) for mark in marks)
        return [annotation] if bounded else _members(inner)
    if origin in (Union, types.UnionType):
        return [member for arg in get_args(annotation) for member in _members(arg)]
    return [annotation]


def _convert_union(members: list[Any], bounds: Sequence[Any]) -> Any:
    """Allows None besides what the value's JSON kind selects."""
    by_kind: dict[str, list[Any]] = {}
    for member in members:
        if member is not type(None):
            by_kind.setdefault(_kind_of_type(member), []).append(member)
    choices = {kind: _one_kind(kind, group, bounds) for kind, group in by_kind.items()}
    picked = next(iter(choices.values()))
    if len(choices) > 1:
        picked = _tagged(choices, _kind_of_value, key="", supported=sorted(choices))
    return picked | None if type(None) in members else picked


def _one_kind(kind: str, group: list[Any], bounds: Sequence[Any]) -> Any:
    if kind == "object" and len(group) > 1:
        return _models_by("type", group)
    if kind == "string" and str in group:
        return _convert(str, bounds)  # the literals beside it are only suggestions
    return _convert(group[0], bounds)


def _models_by(key: str, models: list[type[BaseModel]]) -> Any:
    """Select a model by the literal in its `key`; several with one `type` are selected by role."""
    by_value: dict[str, list[type[BaseModel]]] = {}
    fallback: str | None = None
    for model in models:
        field = model.model_fields[key]
        value = _literal(field.annotation)
        by_value.setdefault(value, []).append(model)
        if fallback is None and not field.is_required():
            fallback = value  # the library allows this key to be absent
    choices = {
        value: strict(group[0]) if len(group) == 1 else _models_by("role", group)
        for value, group in by_value.items()
    }

    def pick(value: Any) -> str | None:
        if isinstance(value, BaseModel):
            value = {key: getattr(value, key)}
        if not isinstance(value, dict):
            return None
        chosen = value.get(key)
        return fallback if chosen is None else chosen if isinstance(chosen, str) else None

    return _tagged(choices, pick, key=key, supported=list(choices))


def _tagged(
    choices: dict[str, Any],
    pick: Callable[[Any], str | None],
    *,
    key: str,
    supported: list[str],
) -> Any:
    """`pick` returns the choice for a value. The choice appears in error locations as a tag."""

    def pick_tag(value: Any) -> str | None:
        name = pick(value)
        return TAG_PREFIX + name if name in choices else None

    tagged = [Annotated[choice, Tag(TAG_PREFIX + name)] for name, choice in choices.items()]
    discriminator = Discriminator(
        pick_tag,
        custom_error_type=NO_MEMBER,
        custom_error_message="fits no member of the union",
        custom_error_context={"key": key, "supported": " ".join(supported)},
    )
    return Annotated[Union[tuple(tagged)], Field(discriminator=discriminator)]  # noqa: UP007


def _literal(annotation: Any) -> str:
    """The one string of a `Literal["x"]` or an `Optional[Literal["x"]]`."""
    for member in _members(annotation):
        if get_origin(member) is Literal:
            return cast(str, get_args(member)[0])
    raise TypeError(f"expected a Literal, got {annotation!r}")


def _kind_of_type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind_of_type(get_args(annotation)[0])
    if origin is Literal:
        return _SCALAR_KINDS[type(get_args(annotation)[0])]
    if origin is list:
        return "array"
    return _SCALAR_KINDS.get(annotation, "object")


def _kind_of_value(value: Any) -> str:
    if isinstance(value, list):
        return "array"
    return _SCALAR_KINDS.get(type(value), "object")
