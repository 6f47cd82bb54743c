"""Translates pydantic's validation errors to the API's error codes, paths and messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from headstart.gateway.protocol import errors
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.schema import NO_MEMBER, TAG_PREFIX
from headstart.gateway.protocol.wording import SHOWN_CHARS, with_article

_KEY_MARK = "[key]"  # pydantic's last element for an error in a key of an object

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def first_error(error: ValidationError) -> ProtocolError:
    """The first error in the order of the schema's fields, as the API reports one at a time."""
    details = error.errors(include_url=False)[0]
    param = _path(details["loc"])
    expected = _EXPECTED.get(details["type"])
    if expected is not None:
        return errors.invalid_type(param, expected, details["input"])
    translate = _TRANSLATIONS.get(details["type"])
    if translate is not None:
        return translate(param, details["input"], details.get("ctx", {}))
    return errors.invalid_value(param, f"valid ({details['msg']})", details["input"])


def _path(location: tuple[int | str, ...]) -> str:
    """A path such as `session.tools[2].name`, without our union tags."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != _KEY_MARK and not step.startswith(TAG_PREFIX):
            path += f".{step[:SHOWN_CHARS]}" if path else step[:SHOWN_CHARS]
    return path


def _no_member(param: str, value: Any, context: dict[str, Any]) -> ProtocolError:
    """No member of a union fits the value: its JSON kind, `type` or `role` is wrong."""
    key, supported = context["key"], context["supported"].split()
    if not key:
        kinds = " or ".join(with_article(kind) for kind in supported)
        return errors.invalid_type(param, kinds, value)
    if not isinstance(value, dict):
        return errors.invalid_type(param, "an object", value)
    param = f"{param}.{key}"
    chosen = value.get(key)
    if chosen is None:
        return errors.missing_parameter(param)
    if not isinstance(chosen, str):
        return errors.invalid_type(param, "a string", chosen)
    return errors.unsupported_value(param, chosen, supported)


def _not_listed(param: str, value: Any, context: dict[str, Any]) -> ProtocolError:
    words, numbers = zip(*re.findall(r"'([^']*)'|(\d+)", context["expected"]), strict=True)
    if any(words) and not isinstance(value, str):
        return errors.invalid_type(param, "a string", value)
    if any(numbers) and (isinstance(value, bool) or not isinstance(value, int)):
        return errors.invalid_type(param, "an integer", value)
    return errors.unsupported_value(param, value, words if any(words) else numbers)


def _too_long(param: str, value: Any, context: dict[str, Any]) -> ProtocolError:
    limit = context["max_length"]
    if limit == 1:
        return errors.invalid_value(param, "an array of exactly one value", value)
    if isinstance(value, dict):
        return errors.invalid_value(param, f"an object of at most {limit} pairs", value)
    return errors.array_too_long(param, limit, len(value))


_TRANSLATIONS: dict[str, Callable[[str, Any, dict[str, Any]], ProtocolError]] = {
    "missing": lambda param, value, ctx: errors.missing_parameter(param),
    "extra_forbidden": lambda param, value, ctx: errors.unknown_parameter(param),
    "greater_than_equal": lambda param, value, ctx: errors.invalid_value(
        param, f"at least {ctx['ge']}", value
    ),
    "less_than_equal": lambda param, value, ctx: errors.invalid_value(
        param, f"at most {ctx['le']}", value
    ),
    "string_too_long": lambda param, value, ctx: errors.string_too_long(
        param, ctx["max_length"], len(value)
    ),
    "string_too_short": lambda param, value, ctx: errors.invalid_value(
        param, f"at least {ctx['min_length']} characters long", value
    ),
    "too_long": _too_long,
    "too_short": lambda param, value, ctx: errors.invalid_value(
        param, f"an array of at least {ctx['min_length']} values", value
    ),
    "literal_error": _not_listed,
    NO_MEMBER: _no_member,
}
