"""How much context a session keeps: its own settings, with the server's as defaults."""

from __future__ import annotations

from openai.types.realtime import RealtimeTruncationRetentionRatio

from headstart.engine import api
from headstart.gateway.protocol.session_config import SessionConfig
from headstart.gateway.session.context import SessionContext
from headstart.gateway.settings import Settings


def window_of(config: SessionConfig, settings: Settings) -> api.Window:
    """The context window. `gateway.window` sets all of it; the API's `truncation` sets the token
    limit after the instructions and how much is retained when it truncates."""
    tokens, vision_tokens = settings.window_tokens, settings.window_vision_tokens
    retained = api.Window().retained
    truncation = config.truncation
    if isinstance(truncation, dict) and truncation.get("type") == "retention_ratio":
        ratio = RealtimeTruncationRetentionRatio.model_validate(truncation)
        retained = ratio.retention_ratio
        if ratio.token_limits is not None:
            tokens = ratio.token_limits.post_instructions or tokens
    summarise = settings.window_summarise
    options = None if config.gateway is None else config.gateway.window
    if options is not None:
        tokens = options.tokens or tokens
        vision_tokens = options.vision_tokens or vision_tokens
        summarise = summarise if options.summarise is None else options.summarise
    return api.Window(tokens, vision_tokens, retained, summarise)


def window_to_wire(window: api.Window) -> dict[str, object]:
    """All fields of the window, for the latency report."""
    return {name: getattr(window, name) for name in window.__struct_fields__}


def remember(context: SessionContext, before: SessionConfig) -> None:
    """Send the window to the engine if a session update changed it."""
    window = window_of(context.config, context.settings)
    if window != window_of(before, context.settings):
        context.send_to_engine(api.Remember(context.session_id, window))
