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
from typing import Annotated, Any

import typer

from headstart.client_key import NO_KEY, ApiKey
from headstart.gateway.errors import GatewayError
from headstart.interrupts import at_work
from headstart.recordings import commands as recordings
from headstart.server_options import Config, Ears, EarsLanguage, Engine, Model
from headstart.talk_commands import ask, server_arguments, talk
from headstart.top.command import top

PLUGIN_GROUP = "headstart.commands"
PLUGIN_HELP = {
    "bench": "Run a benchmark; each ends in one JSON line.",
    "models": "List, fetch and describe models and their weights.",
}
"""Shown by `headstart --help` without loading the plug-in."""

Device = Annotated[
    str | None,
    typer.Option(
        help="What decodes: cpu, cuda or cuda:N; auto is the CPU (docs/gpu.md).",
        metavar="DEVICE",
        show_default="auto",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Storage of a model directory's weights: auto, bf16, fp32, int8, or dummy (random).",
        metavar="FORM",
        show_default="auto",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="With dummy weights: 3b, 7b or qwen2-vl-7b, without any files.",
        metavar="SIZE",
        show_default=False,
    ),
]
Tail = Annotated[
    str | None,
    typer.Option(
        help="What a directory's model reads of an unfinished unit of audio: closed (nothing) or "
        "provisional.",
        metavar="HOW",
        show_default="auto",
    ),
]
Llm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        help="URL of an LLM server that decodes: vLLM, SGLang, llama.cpp (docs/backends.md). Give "
        "it again for each of several.",
        metavar="URL",
        show_default="the model's own decoder",
    ),
]
LlmModel = Annotated[
    str | None,
    typer.Option(help="Which model of that server.", metavar="NAME", show_default="its only one"),
]
LlmKeyEnv = Annotated[
    str | None,
    typer.Option(
        help="Environment variable with that server's key.",
        metavar="VARIABLE",
        show_default=False,
    ),
]
LlmTokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="Tokenizer and chat template of that server's model: a folder, or a GGUF file.",
        metavar="PATH",
        show_default="chat messages",
    ),
]
Senses = Annotated[
    str | None,
    typer.Option(
        help="Whether pictures and sounds go to that server's model: words (never), native "
        "(always), auto (if it takes them).",
        metavar="WHICH",
        show_default="auto",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--engine-endpoint", help="ZeroMQ address between gateway and engine.", metavar="ADDRESS"
    ),
]
EngineCount = Annotated[
    str | None,
    typer.Option(
        "--engines",
        help="Engine processes, each with its share of the cores (docs/many-engines.md).",
        metavar="INTEGER",
        show_default="1",
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="What encodes a model directory's pictures: thread (of each engine) or process (one "
        "for all; docs/encoders.md).",
        metavar="WHERE",
        show_default="thread",
    ),
]
EncoderUrl = Annotated[
    str | None,
    typer.Option("--encoder-url", help="ZeroMQ address of the encoder process.", metavar="ADDRESS"),
]
Host = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on; 0.0.0.0: all of this machine's (docs/security.md).",
        metavar="ADDRESS",
        show_default="127.0.0.1",
    ),
]
Port = Annotated[
    str | None,
    typer.Option(help="TCP port; 0: any free one.", metavar="INTEGER", show_default="8080"),
]
DemoPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="TCP port of the web page; 0: any free one.",
        show_default="8080, or any free one",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting of `headstart settings`. Repeatable.", metavar="NAME=VALUE"
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Record the dashboard's feed in a new file, gzipped JSON lines.",
        show_default=False,
    ),
]
Announce = Annotated[bool, typer.Option("--announce", hidden=True)]


def serve(
    model: Model = None,
    device: Device = None,
    weights: Weights = None,
    size: Size = None,
    tail: Tail = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    engine: Engine = None,
    llm: Llm = None,
    llm_model: LlmModel = None,
    llm_key_env: LlmKeyEnv = None,
    tokenizer: LlmTokenizer = None,
    engines: EngineCount = None,
    encoder: Encoder = None,
    encoder_url: EncoderUrl = None,
    senses: Senses = None,
    host: Host = None,
    port: Port = None,
    record: Record = None,
    config: Config = None,
    assignments: Set = None,
    announce: Announce = False,
) -> None:
    """Run the server: gateway and engine, until Ctrl-C."""
    from headstart.gateway.server import main as processes

    flags = {"model": model, "engine": engine, "host": host, "port": port, "engines": engines}
    flags |= {"ears": ears, "ears_language": ears_language}
    flags |= {"device": device, "weights": weights, "size": size, "tail": tail, "record": record}
    flags |= _llm_flags(llm, llm_model, llm_key_env, tokenizer) | {"senses": senses}
    flags |= _encoder_flags(encoder, encoder_url)
    wanted = _settings(config, flags, assignments)
    at_work()
    if wanted.web_dir is None:
        _hint_at_charts()
    processes.serve(wanted, announce)


def _hint_at_charts() -> None:
    from headstart import web_assets

    if web_assets.VENDOR.parent.is_dir() and not web_assets.is_there():
        print(
            "headstart: the dashboard draws plain charts; better ones come with "
            "`python -m headstart.web_assets`",
            file=sys.stderr,
        )


def web(
    endpoint: Endpoint = None,
    model: Model = None,
    host: Host = None,
    port: Port = None,
    config: Config = None,
    assignments: Set = None,
    announce: Announce = False,
) -> None:
    """Run the gateway alone; `headstart engine` is the other half."""
    from headstart.gateway.server import main as processes

    flags = {"engine_endpoint": endpoint, "model": model, "host": host, "port": port}
    wanted = _settings(config, flags, assignments)
    at_work()
    processes.web(wanted, announce)


def engine(
    endpoint: Endpoint = None,
    model: Model = None,
    device: Device = None,
    weights: Weights = None,
    size: Size = None,
    tail: Tail = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    engine: Engine = None,
    llm: Llm = None,
    llm_model: LlmModel = None,
    llm_key_env: LlmKeyEnv = None,
    tokenizer: LlmTokenizer = None,
    engines: EngineCount = None,
    encoder: Encoder = None,
    encoder_url: EncoderUrl = None,
    senses: Senses = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run the engine alone, restarted when it dies; `headstart web` is the other half."""
    from headstart.gateway.server import main as processes

    flags = {"engine_endpoint": endpoint, "model": model, "engine": engine, "engines": engines}
    flags |= {"ears": ears, "ears_language": ears_language}
    flags |= {"device": device, "weights": weights, "size": size, "tail": tail}
    flags |= _llm_flags(llm, llm_model, llm_key_env, tokenizer) | {"senses": senses}
    flags |= _encoder_flags(encoder, encoder_url)
    wanted = _settings(config, flags, assignments)
    at_work()
    processes.engine(wanted)


def encoder(
    url: EncoderUrl = None,
    model: Model = None,
    weights: Weights = None,
    size: Size = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run an encoder process alone; engines with its --encoder-url send it their pictures."""
    from headstart.gateway.server import main as processes

    flags = {"encoder_url": url, "model": model, "weights": weights, "size": size}
    wanted = _settings(config, flags, assignments)
    at_work()
    processes.encoder(wanted)


def demo(
    model: Model = None,
    device: Device = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    port: DemoPort = None,
    api_key: ApiKey = NO_KEY,
) -> None:
    """Play the bundled spoken questions, one about a picture, then keep the web page running."""
    from headstart.talk.client import TalkOptions
    from headstart.talk.run import TalkCommand, run

    clips = Path(__file__).parent / "clips"
    files = [clips / name for name in ("capital.wav", "demo.mp4")]
    options = TalkOptions(model=model, speak=True, api_key=api_key)
    flags = {"--ears": ears, "--ears-language": ears_language, "--device": device}
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
    given = sorted(_settings(file, {}, None).model_fields_set)
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


def _llm_flags(
    urls: list[str] | None, model: str | None, key_env: str | None, tokenizer: str | None
) -> dict[str, Any]:
    """Settings of the LLM servers."""
    flags = {"llm_model": model, "llm_key_env": key_env, "tokenizer": tokenizer}
    return flags | {"llm": " ".join(urls) if urls else None}


def _encoder_flags(encoder: str | None, url: str | None) -> dict[str, Any]:
    """Settings of what encodes pictures; with an address it is a process."""
    return {"encoder": encoder or ("process" if url else None), "encoder_url": url}


def _settings(config: Path | None, flags: dict[str, Any], assignments: list[str] | None) -> Any:
    from headstart.gateway.config import load, parse_assignments

    given = {name: value for name, value in flags.items() if value is not None}
    return load(config, parse_assignments(assignments or []) | given)


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
