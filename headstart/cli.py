"""The `headstart` command.

Its own commands import what they need when they run. Other packages' commands (entry points of the
group `headstart.commands`) are loaded only when they are called. So `headstart --help` stays fast,
and a broken plug-in affects only itself.

"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from headstart.client_key import NO_KEY, ApiKey
from headstart.gateway.errors import GatewayError
from headstart.interrupts import at_work
from headstart.recordings import commands as recordings
from headstart.server_commands import encoder, engine, serve, web
from headstart.server_options import (
    Config,
    DemoPort,
    Device,
    Ears,
    EarsLanguage,
    Llm,
    LlmKeyEnv,
    LlmModel,
    LlmTokenizer,
    Model,
    Senses,
    Set,
)
from headstart.talk_commands import ask, server_arguments, talk
from headstart.top.command import top

PLUGIN_GROUP = "headstart.commands"
PLUGIN_HELP = {
    "bench": "Run a benchmark; each ends in one JSON line.",
    "models": "List, fetch and describe models and their weights.",
}
"""Shown by `headstart --help` without loading the plug-in."""


def demo(
    model: Model = None,
    device: Device = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    llm: Llm = None,
    llm_model: LlmModel = None,
    llm_key_env: LlmKeyEnv = None,
    tokenizer: LlmTokenizer = None,
    senses: Senses = None,
    config: Config = None,
    assignments: Set = None,
    port: DemoPort = None,
    api_key: ApiKey = NO_KEY,
) -> None:
    """Play the bundled spoken questions, one about a picture, then keep the web page running.

    With --llm URL an LLM server of yours answers them.
    """
    from headstart.talk.client import TalkOptions
    from headstart.talk.run import TalkCommand, run

    clips = Path(__file__).parent / "clips"
    files = [clips / name for name in ("capital.wav", "demo.mp4")]
    options = TalkOptions(model=model, speak=True, api_key=api_key)
    flags = {
        "--ears": ears,
        "--ears-language": ears_language,
        "--device": device,
        "--llm": llm,
        "--llm-model": llm_model,
        "--llm-key-env": llm_key_env,
        "--tokenizer": tokenizer,
        "--senses": senses,
        "--config": config,
        "--set": assignments,
    }
    arguments = server_arguments(flags)
    command = TalkCommand(files, options=options, server_arguments=arguments, stay=True, port=port)
    at_work()
    raise typer.Exit(run(command))


def doctor(
    model: Annotated[
        str, typer.Option(help="small, medium or tiny.", metavar="NAME", show_default="small")
    ] = "small",
) -> None:
    """Check whether this machine can run a server, without starting or fetching anything."""
    from headstart.doctor import exit_code, findings

    at_work()
    found = findings(model)
    for each in found:
        print(f"{each.mark:<8} {each.sentence}")
    raise typer.Exit(exit_code(found))


def validate(file: Annotated[Path, typer.Argument(help="TOML file of settings.")]) -> None:
    """Check a file of settings without starting anything."""
    from headstart.gateway.config import load

    given = sorted(load(file).model_fields_set)
    print(f"{file}: good; sets {', '.join(given) if given else 'nothing'}")


def settings() -> None:
    """Print every setting, with its meaning and default, as a file for `--config`."""
    from headstart.gateway.config import as_toml

    print(as_toml(), end="")


def keys(
    folder: Annotated[Path, typer.Argument(help="Where to make them; keys that are there stay.")],
    engines: Annotated[
        list[str] | None, typer.Argument(help="Names of engines.", show_default=False)
    ] = None,
    encoder: Annotated[
        bool, typer.Option("--encoder", help="For an encoder process, too (docs/encoders.md).")
    ] = False,
) -> None:
    """Make CURVE keys for a gateway and engines on other hosts: one folder for each host."""
    from headstart.engine.api.keys import BadKeys, make_keys
    from headstart.gateway.errors import ConfigError

    try:
        made = make_keys(folder, engines or (), encoder=encoder)
    except BadKeys as error:
        raise ConfigError([str(error)]) from error
    for host in made:
        print(f"made {host}/")
    print("copy each folder to its host, and name it there in engine_keys (docs/many-engines.md)")


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Talk": (demo, serve, talk, ask, top),
    "Recordings of a server": (recordings.replay, recordings.export, recordings.compare),
    "Settings and machine": (settings, validate, doctor),
    "Parts of a server on their own": (web, engine, encoder, keys),
}
"""Own commands, as `headstart --help` groups them."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headstart {importlib.metadata.version('headstart')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Real-time audio and video conversations with a model that listens ahead.

    Begin with `headstart demo`.
    """


def _add_plugin(app: typer.Typer, entry: importlib.metadata.EntryPoint) -> None:
    """Add a command that loads another package's commands when called."""

    def call(context: typer.Context) -> None:
        try:
            loaded = entry.load()
        except Exception as error:
            # A broken plug-in reports where it fails; other commands do not depend on it.
            print(
                f"headstart {entry.name}: cannot be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
            )
            raise typer.Exit(1) from error
        at_work()
        loaded(args=list(context.args), prog_name=f"headstart {entry.name}")

    app.command(
        entry.name,
        rich_help_panel="Models and benchmarks",
        help=PLUGIN_HELP.get(entry.name, f"Commands of {entry.value.partition(':')[0]}."),
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )(call)


def build(plugins: Iterable[importlib.metadata.EntryPoint]) -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    for panel, commands in PANELS.items():
        for command in commands:
            app.command(rich_help_panel=panel)(command)
    for entry in sorted(plugins, key=lambda entry: entry.name):
        _add_plugin(app, entry)
    return app


def main() -> None:
    """Entry point. Our own errors end with their message and exit code, without a traceback."""
    app = build(importlib.metadata.entry_points(group=PLUGIN_GROUP))
    try:
        app()
    except GatewayError as error:
        from headstart.talk.output import printable  # late: it imports what plays files

        print(printable(f"headstart: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except PermissionError as error:
        print(f"headstart: {error}", file=sys.stderr)
        sys.exit(1)
