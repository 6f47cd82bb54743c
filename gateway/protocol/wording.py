"""Formats clients' values and lists for error messages."""

from __future__ import annotations

import json
from collections.abc import Iterable

SHOWN_CHARS = 100  # how much of a client's value an error message repeats


def json_kind(value: object) -> str:
    """The JSON name of a decoded value's kind, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a decimal"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, (list, tuple)) else "an object"


def with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


def listed(values: Iterable[str]) -> str:
    """'a', 'b', and 'c' - as the API formats lists."""
    quoted = [f"'{value}'" for value in values]
    if len(quoted) <= 2:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def shown(value: object) -> str:
    """A client's value for a message: always short, and never a whole object."""
    if isinstance(value, (dict, list)):
        return json_kind(value)
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return f"'{text}'" if len(text) <= SHOWN_CHARS else f"'{text[:SHOWN_CHARS]}…'"
