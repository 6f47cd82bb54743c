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
from headstart.top.command import top

PLUGIN_GROUP = "headstart.commands"
PLUGIN_HELP = {
    "bench": "Run a benchmark; each ends in one JSON line.",
    "models": "List, fetch and describe models and their weights.",
}
"""Shown by `headstart --help` without loading the plug-in."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings (`headstart settings` prints one).",
        show_default=False,
    ),
]
Model = Annotated[
    str | None, typer.Option(help="Name of a model, or its directory.", show_default="small")
]
Ears = Annotated[
    str | None,
    typer.Option(
        help="Whisper for recognition: folder, weights by name, or auto (the largest fetched one "
        "that this machine can run in real time).",
        show_default="the model's own",
    ),
]
EarsLanguage = Annotated[
    str | None,
    typer.Option(help="Spoken language: a code, or auto.", show_default="en"),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="What decodes: cpu, cuda or cuda:N; auto is the CPU (docs/gpu.md).",
        show_default="auto",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Storage of a model directory's weights: auto, bf16, fp32, int8, or dummy (random).",
        show_default="auto",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="With dummy weights: 3b, 7b or qwen2-vl-7b, without any files.", show_default=False
    ),
]
Tail = Annotated[
    str | None,
    typer.Option(
        help="What a directory's model reads of an unfinished unit of audio: closed (nothing) or "
        "provisional.",
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
    str | None, typer.Option(help="Which model of that server.", show_default="its only one")
]
LlmKeyEnv = Annotated[
    str | None,
    typer.Option(help="Environment variable with that server's key.", show_default=False),
]
LlmTokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="Tokenizer and chat template of that server's model: a folder, or a GGUF file.",
        show_default="chat messages",
    ),
]
Senses = Annotated[
    str | None,
    typer.Option(
        help="Whether pictures and sounds go to that server's model: words (never), native.",
        show_default="auto",
    ),
]
Engine = Annotated[str | None, typer.Option(help="Which engine answers.", show_default="local")]
Endpoint = Annotated[
    str | None,
    typer.Option("--engine-endpoint", help="ZeroMQ address between gateway and engine."),
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
        show_default="thread",
    ),
]
EncoderUrl = Annotated[
    str | None,
    typer.Option("--encoder-url", help="ZeroMQ address of the encoder process.", metavar="ADDRESS"),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[
    str | None,
    typer.Option(help="TCP port; 0: any free one.", metavar="INTEGER", show_default="8080"),
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


def talk(
    files: Annotated[list[Path], typer.Argument(help="Media files; each is one turn.")],
    url: Annotated[
        str | None, typer.Option(help="Server to talk to.", show_default="one of its own")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Not paced to real time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the result last.")] = False,
    frames: Annotated[
        bool | None,
        typer.Option(help="Send one picture per second.", show_default="if there are moving ones"),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Leave the server and its page running afterwards.")
    ] = False,
    model: Model = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    engine: Engine = None,
    config: Config = None,
    packet_ms: Annotated[int, typer.Option(min=1, max=1000, help="Audio per message, ms.")] = 40,
    webrtc: Annotated[
        bool, typer.Option("--webrtc", help="As a WebRTC call, sound on a track.")
    ] = False,
    api_key: ApiKey = NO_KEY,
    speak: Annotated[
        bool, typer.Option("--speak", help="Ask for spoken answers, and time their first sound.")
    ] = False,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            help="Ask about one file of any length, which is looked at part by part "
            "(docs/long-videos.md). Repeatable.",
            metavar="QUESTION",
            show_default=False,
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="With --ask: begin here, as 90, 1:30 or 2m.", metavar="TIME"),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="With --ask: end here.", metavar="TIME")
    ] = None,
    part_s: Annotated[
        float, typer.Option(min=5, max=120, help="With --ask: length of a part, s.")
    ] = 30.0,
    pictures: Annotated[
        int, typer.Option(min=1, max=60, help="With --ask: pictures of a part, on average.")
    ] = 12,
    sampler: Annotated[
        str,
        typer.Option(
            help="With --ask: how they are chosen: change, motion, uniform, scene, flow, sharp."
        ),
    ] = "change",
    notes_chars: Annotated[
        int,
        typer.Option(min=500, help="With --ask: how much of its notes the model reads at once."),
    ] = 6000,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="With --ask: no faster than it would be watched.")
    ] = False,
) -> None:
    """Play media files to a server, as spoken turns of one conversation, or ask about one file."""
    from headstart.talk.client import TalkOptions
    from headstart.talk.run import TalkCommand, run

    arguments = _ears_arguments(ears, ears_language)
    if engine is not None:
        arguments += ["--engine", engine]
    if config is not None:
        arguments += ["--config", str(config)]
    if url is not None and (stay or arguments):
        flag = "--stay" if stay else arguments[0]
        raise typer.BadParameter(
            f"{flag} is for the server that talk starts: leave out --url, or give it to the "
            f"`headstart serve` behind that address"
        )
    if ask:
        if len(files) > 1:
            raise typer.BadParameter(f"--ask is about one file, got {len(files)}")
        if webrtc or speak or stay:
            raise typer.BadParameter("--ask goes with neither --webrtc, --speak nor --stay")
        from headstart.gateway.video.file_sampling import POLICIES
        from headstart.talk.long_file.command import AskCommand
        from headstart.talk.long_file.command import run as run_ask
        from headstart.talk.long_file.report import AnalysisOptions

        policy = next((name for name in POLICIES if name == sampler), None)
        if policy is None:
            raise typer.BadParameter(f"--sampler is {', '.join(POLICIES)}, got {sampler!r}")
        wanted = AnalysisOptions(
            questions=tuple(ask),
            from_s=_time("--from", from_) or 0.0,
            to_s=_time("--to", to),
            part_s=part_s,
            pictures=pictures,
            sampler=policy,
            see=frames is not False,
            paced=real_time,
            model=model,
            api_key=api_key,
            room_chars=notes_chars,
        )
        at_work()
        raise typer.Exit(run_ask(AskCommand(files[0], wanted, url, as_json, arguments)))
    if real_time or from_ is not None or to is not None:
        raise typer.BadParameter("--from, --to and --real-time go with --ask QUESTION")
    if webrtc and fast:
        raise typer.BadParameter("--webrtc is always in real time: leave out --fast")
    if speak and fast:
        raise typer.BadParameter("--speak is always in real time: leave out --fast")
    options = TalkOptions(
        fast=fast,
        frames=frames,
        model=model,
        packet_ms=packet_ms,
        speak=speak,
        webrtc=webrtc,
        api_key=api_key,
    )
    command = TalkCommand(files, url, as_json, options, arguments, stay)
    at_work()
    raise typer.Exit(run(command))


def demo(
    model: Model = None,
    device: Device = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    api_key: ApiKey = NO_KEY,
) -> None:
    """Play the bundled spoken questions, one about a picture, then keep the web page running."""
    from headstart.talk.client import TalkOptions
    from headstart.talk.run import TalkCommand, run

    clips = Path(__file__).parent / "clips"
    files = [clips / name for name in ("capital.wav", "demo.mp4")]
    options = TalkOptions(model=model, speak=True, api_key=api_key)
    arguments = _ears_arguments(ears, ears_language)
    arguments += ["--device", device] if device is not None else []
    command = TalkCommand(files, options=options, server_arguments=arguments, stay=True)
    at_work()
    raise typer.Exit(run(command))


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


def _llm_flags(
    urls: list[str] | None, model: str | None, key_env: str | None, tokenizer: str | None
) -> dict[str, Any]:
    """Settings of the LLM servers."""
    flags = {"llm_model": model, "llm_key_env": key_env, "tokenizer": tokenizer}
    return flags | {"llm": " ".join(urls) if urls else None}


def _encoder_flags(encoder: str | None, url: str | None) -> dict[str, Any]:
    """Settings of what encodes pictures; with an address it is a process."""
    return {"encoder": encoder or ("process" if url else None), "encoder_url": url}


def _time(flag: str, text: str | None) -> float | None:
    """A time that a flag was given, in s."""
    from headstart.talk.media.times import BadTime, parse_time

    try:
        return None if text is None else parse_time(text)
    except BadTime as error:
        raise typer.BadParameter(f"{flag}: {error}") from None


def _ears_arguments(ears: str | None, language: str | None) -> list[str]:
    """Arguments for the server that a talk starts."""
    flags = {"--ears": ears, "--ears-language": language}
    return [word for flag, value in flags.items() if value is not None for word in (flag, value)]


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
    """Real-time audio and video conversations with a model that listens ahead."""


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
        help=PLUGIN_HELP.get(entry.name, f"Commands of {entry.value.partition(':')[0]}."),
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )(call)


def build(plugins: Iterable[importlib.metadata.EntryPoint]) -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    own: list[Callable[..., None]] = [demo, serve, talk, settings, validate, engine, web, encoder]
    own += [keys, top, recordings.replay, recordings.export, recordings.compare]
    for command in own:
        app.command()(command)
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
