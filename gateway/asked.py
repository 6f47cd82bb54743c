"""What a `response.create` asks for, beside what the session has in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openai.types.realtime import RealtimeResponseCreateParams
from pydantic import BaseModel

from engine import api
from gateway.protocol.items import Json
from gateway.protocol.session_config import Modality, SessionConfig, dump, wire_format
from gateway.tools import calling_of, check_choice, engine_tools


@dataclass(frozen=True, slots=True)
class Asked:
    """One response's own settings; None: as the session has it. `calling`: fields of
    `api.Sampling`."""

    out_of_band: bool = False
    instructions: str | None = None
    modality: Modality | None = None
    sound_format: Json | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    metadata: dict[str, str] | None = None
    calling: Json | None = None
    tools: tuple[api.Tool, ...] | None = None

    @classmethod
    def of(cls, params: RealtimeResponseCreateParams | None, config: SessionConfig) -> Asked:
        """Raises `ProtocolError` for a tool that is to be called and is not there."""
        if params is None:
            return cls()
        calling, tools = _tools(params, config)
        output = params.audio.output if params.audio is not None else None
        own_format = output.format if output is not None else None
        return cls(
            out_of_band=params.conversation == "none",
            instructions=params.instructions,
            modality=params.output_modalities[0] if params.output_modalities else None,
            sound_format=None if own_format is None else wire_format(own_format),
            max_output_tokens=params.max_output_tokens,
            metadata=params.metadata,
            calling=calling,
            tools=tools,
        )


def _tools(
    params: RealtimeResponseCreateParams, config: SessionConfig
) -> tuple[Json | None, tuple[api.Tool, ...] | None]:
    own = None if params.tools is None else [dump(tool) for tool in params.tools]
    choice = params.tool_choice
    chosen: str | Json = config.tool_choice
    if own is None and choice is None:
        return None, None
    tools = list(config.tools) if own is None else own
    if choice is not None:
        chosen = dump(choice) if isinstance(choice, BaseModel) else choice
        check_choice(chosen, tools, "response.tool_choice")
    if own is not None and not own:  # the session's stay in the prompt, and are not called
        return {"call": api.ToolChoice.NONE}, None
    return calling_of(chosen, tools), None if own is None else engine_tools(own)
