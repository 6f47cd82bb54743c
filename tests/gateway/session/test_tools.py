"""Tools and tool choice in the engine's terms."""

from __future__ import annotations

import json

import pytest

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.session.tools import calling_of, check_choice, engine_tools

TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object", "a": "é"}}]
NAMED = {"type": "function", "name": "f"}


def test_a_tool_without_more_than_a_name_takes_nothing() -> None:
    """Description and parameters may be absent; a schema always goes along."""
    (tool,) = engine_tools([{"name": "g"}])
    assert tool == api.Tool("g", "", '{"type":"object","properties":{}}')
    (tool,) = engine_tools(TOOLS)
    assert json.loads(tool.parameters) == TOOLS[0]["parameters"]


def test_what_is_not_there_is_not_required() -> None:
    """Without tools, or with another name, every choice is as auto."""
    for choice in ("auto", "none", "required", NAMED):
        assert calling_of(choice, []) == {}
    assert calling_of({"type": "function", "name": "g"}, TOOLS) == {}
    assert calling_of(NAMED, TOOLS) == {"call": "required", "function": "f"}


@pytest.mark.parametrize(
    ("choice", "param"),
    [("required", "x"), (NAMED, "x.name")],
)
def test_a_choice_without_its_tool_is_an_error(choice: str | dict[str, str], param: str) -> None:
    """It names the field."""
    with pytest.raises(ProtocolError) as caught:
        check_choice(choice, [], "x")
    assert caught.value.param == param
    if choice != "required":
        check_choice(choice, TOOLS, "x")
