"""One default for each of the engine's settings: the engine process, the gateway's settings and the
command line's help have the same, and so have the values that are allowed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin

from headstart import server_commands, server_options
from headstart.engine import config
from headstart.engine.config import (
    CHOICES,
    LLM_CHOICES,
    PROCESS_DEFAULTS,
    EngineConfig,
    LlmServerConfig,
    process_default,
)
from headstart.engine.process.options import engine_config, parse_options
from headstart.gateway.config import load
from headstart.gateway.engines.local import engine_argv
from headstart.gateway.settings import Settings
from headstart.talk_commands import ask, talk

GATEWAYS_NAMES = {"llm_model": "model", "llm_key_env": "key_env", "llm_sessions": "sessions"}
"""Settings of LLM servers, by the gateway's names."""
OTHERWISE = {
    "ears": "the engine takes the model's own where none is named",
    "threads": "0 is all cores",
    "llm": "no server is a default",
}


def parsed(*options: str) -> Any:
    return parse_options("", ["--endpoint", "ipc://x", *options])


def test_the_engines_options_have_the_settings_defaults() -> None:
    """All of them; the two that differ from an engine in a test are listed beside the settings."""
    arguments = parsed()
    assert engine_config(arguments) == replace(EngineConfig(), **PROCESS_DEFAULTS)
    for each in fields(LlmServerConfig):
        names = [each.name, f"llm_{each.name}"]
        # `model` alone is the engine's own.
        found = [getattr(arguments, name) for name in reversed(names) if hasattr(arguments, name)]
        assert each.name == "urls" or found[0] == each.default


def shared() -> Iterator[tuple[str, Any]]:
    """The gateway's settings that are the engine's too, each with the engine's default."""
    engines = {each.name for each in fields(EngineConfig)} - OTHERWISE.keys()
    servers = {each.name for each in fields(LlmServerConfig)}
    for name in Settings.model_fields:
        if name.endswith("_mib") and f"{name.removesuffix('_mib')}_bytes" in engines:
            yield name, process_default(f"{name.removesuffix('_mib')}_bytes") // config.MIB
        elif name in engines:
            yield name, process_default(name)
        elif (of_server := GATEWAYS_NAMES.get(name, name)) in servers:
            yield name, process_default(of_server, LlmServerConfig)


def test_the_gateways_settings_have_the_engines_defaults() -> None:
    """And the values that the engine allows."""
    names = []
    for name, default in shared():
        names.append(name)
        field = Settings.model_fields[name]
        assert field.default == default, name
        if get_origin(field.annotation) is Literal and name in (*CHOICES, *LLM_CHOICES):
            allowed = CHOICES.get(name) or LLM_CHOICES[name]
            assert get_args(field.annotation) == tuple(allowed), name
    assert {"kv_pool_mib", "model", "frame_tokens", "senses", "llm_sessions"} <= set(names)


def test_a_gateway_with_default_settings_starts_an_engine_with_them() -> None:
    """What it writes on the engine's command line is what the engine has without it."""
    argv = engine_argv(load(), "ipc://x")
    given = argv[argv.index("--endpoint") + 2 :]
    assert "--kv-pool-mib" in given
    assert parsed(*given) == parsed()


def commands() -> Iterator[tuple[str, str, Any]]:
    """Of each command's options: its name, the setting that it is, and what its help shows."""
    own: list[Callable[..., None]] = [*server_commands.ALL, talk, ask]
    for command in own:
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
            (option,) = getattr(parameter.annotation, "__metadata__", (None,))[:1]
            yield command.__name__, name, getattr(option, "show_default", None)


def test_the_command_lines_help_shows_the_settings_defaults() -> None:
    """Where it shows a value, and not what happens without one."""
    seen = set()
    for command, name, shown in commands():
        field = Settings.model_fields.get(name) or Settings.model_fields.get(f"engine_{name}")
        if field is None or not isinstance(shown, str) or field.default is None:
            continue
        assert shown == str(field.default), f"{command} --{name}"
        seen.add(name)
    assert {"model", "engine", "weights", "ears_language", "port"} <= seen


def test_the_sizes_that_can_be_served_are_the_engines() -> None:
    """All but the one that only tests are fast enough for; the help names them."""
    from headstart.engine.models.sizes import SIZES

    kind = Settings.model_fields["size"].annotation
    served = get_args(get_args(kind)[0])
    assert served == tuple(size for size in SIZES if size != "tiny")
    _, option = get_args(server_options.Size)
    assert all(size in option.help for size in served)
