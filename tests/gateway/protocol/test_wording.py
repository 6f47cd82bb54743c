"""How messages write values."""

from __future__ import annotations

import pytest

from headstart.gateway.protocol.wording import SHOWN_CHARS, json_kind, listed, shown, with_article


@pytest.mark.parametrize(
    ("values", "text"),
    [(["a"], "'a'"), (["a", "b"], "'a' and 'b'"), (["a", "b", "c"], "'a', 'b', and 'c'")],
)
def test_lists_are_written_as_the_api_writes_them(values: list[str], text: str) -> None:
    """Supported values: 'a', 'b', and 'c'."""
    assert listed(values) == text


def test_values_are_named_as_json_names_them() -> None:
    """With the right article."""
    values: list[object] = [None, True, 1, 1.5, "x", [], {}]
    kinds = [json_kind(value) for value in values]
    assert kinds[:4] == ["null", "a boolean", "an integer", "a decimal"]
    assert kinds[4:] == ["a string", "an array", "an object"]
    assert [with_article(kind) for kind in ("integer", "string")] == ["an integer", "a string"]


def test_a_shown_value_is_short() -> None:
    """Whatever its size; an object is never shown."""
    assert shown("x") == "'x'"
    assert shown(None) == "'null'"
    assert shown({"x" * 999: 1}) == "an object"
    assert len(shown("x" * 10_000)) == SHOWN_CHARS + 3
