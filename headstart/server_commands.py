"""The commands that run a server, or a part of one: `serve`, `web`, `engine` and `encoder`.

All but three of their options are settings, and most belong to several of them. So each is named
once, in `OPTIONS`, and a command by the names of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from headstart import server_options as options
from headstart.interrupts import at_work

Flags = dict[str, Any]
"""What was given for each option of a command, by its name in `OPTIONS`; None: nothing."""

OPTIONS = {
    "engine_endpoint": options.Endpoint,
    "model": options.Model,
    "device": options.Device,
    "weights": options.Weights,
    "size": options.Size,
    "tail": options.Tail,
    "ears": options.Ears,
    "ears_language": options.EarsLanguage,
    "engine": options.Engine,
    "llm": options.Llm,
    "llm_model": options.LlmModel,
    "llm_key_env": options.LlmKeyEnv,
    "tokenizer": options.LlmTokenizer,
    "engines": options.EngineCount,
    "encoder": options.Encoder,
    "encoder_url": options.EncoderUrl,
    "senses": options.Senses,
    "host": options.Host,
    "port": options.Port,
    "record": options.Record,
    # No settings, but where settings are, and what a parent process asks for.
    "config": options.Config,
    "assignments": options.Set,
    "announce": options.Announce,
}
HEARING = ("ears", "ears_language")
LLM = ("llm", "llm_model", "llm_key_env", "tokenizer")
ENGINE = (
    *("model", "device", "weights", "size", "tail", *HEARING, "engine", *LLM),
    *("engines", "encoder", "encoder_url", "senses"),
)
SETTINGS = ("config", "assignments")


def with_options(*names: str) -> Callable[[Callable[[Flags], None]], Callable[..., None]]:
    """A command with these of `OPTIONS`, in this order, which gets what was given for them."""

    def decorate(run: Callable[[Flags], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(**flags: Any) -> None:
            run(flags)

        # Typer makes a command's options of the signature.
        command.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(
                    name,
                    Parameter.KEYWORD_ONLY,
                    annotation=OPTIONS[name],
                    default=False if name == "announce" else None,
                )
                for name in names
            ]
        )
        command.__annotations__ = {name: OPTIONS[name] for name in names}
        return command

    return decorate


@with_options(*ENGINE, "host", "port", "record", *SETTINGS, "announce")
def serve(flags: Flags) -> None:
    """Run the server: gateway and engine, until Ctrl-C."""
    from headstart.gateway.server import main as processes

    announce = flags.pop("announce")
    wanted = _settings(flags)
    at_work()
    if wanted.web_dir is None:
        _hint_at_charts()
    processes.serve(wanted, announce)


@with_options("engine_endpoint", "model", "host", "port", *SETTINGS, "announce")
def web(flags: Flags) -> None:
    """Run the gateway alone; `headstart engine` is the other half."""
    from headstart.gateway.server import main as processes

    announce = flags.pop("announce")
    wanted = _settings(flags)
    at_work()
    processes.web(wanted, announce)


@with_options("engine_endpoint", *ENGINE, *SETTINGS)
def engine(flags: Flags) -> None:
    """Run the engine alone, restarted when it dies; `headstart web` is the other half."""
    from headstart.gateway.server import main as processes

    wanted = _settings(flags)
    at_work()
    processes.engine(wanted)


@with_options("encoder_url", "model", "weights", "size", *SETTINGS)
def encoder(flags: Flags) -> None:
    """Run an encoder process alone; engines with its --encoder-url send it their pictures."""
    from headstart.gateway.server import main as processes

    wanted = _settings(flags)
    at_work()
    processes.encoder(wanted)


ALL = (serve, web, engine, encoder)


def _settings(flags: Flags) -> Any:
    """The settings of the file, the environment, `--set` and the other flags, later ones
    override earlier ones. Raises `ConfigError`."""
    from headstart.gateway.config import load, parse_assignments

    config, assignments = flags.pop("config"), flags.pop("assignments")
    given = {name: value for name, value in flags.items() if value is not None}
    if urls := given.pop("llm", None):
        given["llm"] = " ".join(urls)
    if "encoder" in flags and "encoder_url" in given:
        given.setdefault("encoder", "process")  # a thread has no address
    return load(config, parse_assignments(assignments or []) | given)


def _hint_at_charts() -> None:
    from headstart import web_assets

    if web_assets.VENDOR.parent.is_dir() and not web_assets.is_there():
        print(
            "headstart: the dashboard draws plain charts; better ones come with "
            "`python -m headstart.web_assets`",
            file=sys.stderr,
        )
