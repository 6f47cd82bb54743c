"""Function tools in the engine's terms: what the model may call, and whether it has to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.items import Json

NO_PARAMETERS = {"type": "object", "properties": {}}


def engine_tools(tools: Iterable[Mapping[str, Any]]) -> tuple[api.Tool, ...]:
    """Checked function tools as the engine takes them."""
    return tuple(
        api.Tool(
            name=tool["name"],
            description=tool.get("description") or "",
            parameters=msgspec.json.encode(tool.get("parameters") or NO_PARAMETERS).decode(),
        )
        for tool in tools
    )


def calling_of(choice: str | Json, tools: Sequence[Mapping[str, Any]]) -> Json:
    """`tool_choice` as fields of `api.Sampling`. What cannot be called is not required: tools and
    choice of a session change one at a time."""
    names = {tool["name"] for tool in tools}
    if not isinstance(choice, str):
        if choice["name"] not in names:
            return {}
        return {"call": api.ToolChoice.REQUIRED, "function": choice["name"]}
    return {"call": api.ToolChoice(choice)} if names else {}


def check_choice(choice: str | Json, tools: Sequence[Mapping[str, Any]], param: str) -> None:
    """Raises `ProtocolError` for a function that is not among the tools, and for a call that is
    required where there are none."""
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise errors.invalid_value(param, "none or auto while there are no tools", choice)
    elif choice["name"] not in {tool["name"] for tool in tools}:
        raise errors.invalid_value(f"{param}.name", "the name of a tool", choice["name"])
