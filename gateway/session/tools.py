"""Function tools in the engine's terms: what the model may call, and whether it must."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json

NO_PARAMETERS = {"type": "object", "properties": {}}


def engine_tools(tools: Iterable[Mapping[str, Any]]) -> tuple[api.Tool, ...]:
    """Validated function tools in the engine's format."""
    return tuple(
        api.Tool(
            name=tool["name"],
            description=tool.get("description") or "",
            parameters=msgspec.json.encode(tool.get("parameters") or NO_PARAMETERS).decode(),
        )
        for tool in tools
    )


def calling_of(choice: str | Json, tools: Sequence[Mapping[str, Any]]) -> Json:
    """`tool_choice` as fields of `api.Sampling`. A function that cannot be called is not required:
    a session's tools and tool choice change one at a time."""
    names = {tool["name"] for tool in tools}
    if not isinstance(choice, str):
        if choice["name"] not in names:
            return {}
        return {"call": api.ToolChoice.REQUIRED, "function": choice["name"]}
    return {"call": api.ToolChoice(choice)} if names else {}


def check_choice(choice: str | Json, tools: Sequence[Mapping[str, Any]], param: str) -> None:
    """Raises `ProtocolError` for a function that is not among the tools, and for a required call
    when there are no tools."""
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise errors.invalid_value(param, "none or auto while there are no tools", choice)
    elif choice["name"] not in {tool["name"] for tool in tools}:
        raise errors.invalid_value(f"{param}.name", "the name of a tool", choice["name"])
