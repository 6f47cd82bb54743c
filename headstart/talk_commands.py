"""The commands `talk` and `ask`: what they are told, and what does not go together."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.client_key import NO_KEY, ApiKey
from headstart.interrupts import at_work
from headstart.server_options import Config, Ears, EarsLanguage, Engine, Model

Url = Annotated[str | None, typer.Option(help="Server to talk to.", show_default="one of its own")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines; the result last.")]

FROM = typer.Option("--from", help="Begin here, as 90, 1:30 or 2m.", metavar="TIME")
TO = typer.Option("--to", help="End here.", metavar="TIME")
PART_S = typer.Option(min=5, max=120, help="Length of a part, s.")
PICTURES = typer.Option(min=1, max=60, help="Pictures looked at in each part, on average.")
SAMPLER = typer.Option(help="How pictures are chosen: change, motion, uniform, scene, flow, sharp.")
NOTES_CHARS = typer.Option(min=500, help="How much of its notes the model reads at once.")
REAL_TIME = typer.Option("--real-time", help="No faster than it would be watched.")


def _hidden(option: Any) -> Any:
    """An option of `ask` for `talk`, which has it only for `talk FILE --ask`."""
    hidden = copy.copy(option)
    hidden.hidden = True
    return hidden


def ask(
    file: Annotated[Path, typer.Argument(help="A video or recording of any length.")],
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="What to ask about it.")
    ],
    url: Url = None,
    as_json: AsJson = False,
    frames: Annotated[
        bool, typer.Option("--frames/--no-frames", help="Whether its pictures are looked at.")
    ] = True,
    from_: Annotated[str | None, FROM] = None,
    to: Annotated[str | None, TO] = None,
    part_s: Annotated[float, PART_S] = 30.0,
    pictures: Annotated[int, PICTURES] = 12,
    sampler: Annotated[str, SAMPLER] = "change",
    notes_chars: Annotated[int, NOTES_CHARS] = 6000,
    real_time: Annotated[bool, REAL_TIME] = False,
    model: Model = None,
    ears: Ears = None,
    ears_language: EarsLanguage = None,
    engine: Engine = None,
    config: Config = None,
    api_key: ApiKey = NO_KEY,
) -> None:
    """Ask about a file of any length, which is looked at part by part (docs/long-videos.md)."""
    from headstart.gateway.video.file_sampling import POLICIES
    from headstart.talk.long_file.command import AskCommand, run
    from headstart.talk.long_file.report import AnalysisOptions

    arguments = _own_server(ears, ears_language, engine, config)
    _check_url("ask", url, arguments)
    policy = next((name for name in POLICIES if name == sampler), None)
    if policy is None:
        raise typer.BadParameter(f"--sampler is {', '.join(POLICIES)}, got {sampler!r}")
    wanted = AnalysisOptions(
        questions=tuple(questions),
        from_s=_time("--from", from_) or 0.0,
        to_s=_time("--to", to),
        part_s=part_s,
        pictures=pictures,
        sampler=policy,
        see=frames,
        paced=real_time,
        model=model,
        api_key=api_key,
        room_chars=notes_chars,
    )
    at_work()
    raise typer.Exit(run(AskCommand(file, wanted, url, as_json, arguments)))


def talk(
    files: Annotated[list[Path], typer.Argument(help="Media files; each is one turn.")],
    url: Url = None,
    fast: Annotated[bool, typer.Option("--fast", help="Not paced to real time.")] = False,
    as_json: AsJson = False,
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
    questions: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            help="As `headstart ask FILE QUESTION`, with its options. Repeatable.",
            metavar="QUESTION",
            show_default=False,
        ),
    ] = None,
    from_: Annotated[str | None, _hidden(FROM)] = None,
    to: Annotated[str | None, _hidden(TO)] = None,
    part_s: Annotated[float, _hidden(PART_S)] = 30.0,
    pictures: Annotated[int, _hidden(PICTURES)] = 12,
    sampler: Annotated[str, _hidden(SAMPLER)] = "change",
    notes_chars: Annotated[int, _hidden(NOTES_CHARS)] = 6000,
    real_time: Annotated[bool, _hidden(REAL_TIME)] = False,
) -> None:
    """Play media files to a server, as spoken turns of one conversation."""
    if questions:
        if len(files) > 1:
            raise typer.BadParameter(f"--ask is about one file, got {len(files)}")
        if webrtc or speak or stay:
            raise typer.BadParameter("--ask goes with neither --webrtc, --speak nor --stay")
        ask(
            files[0],
            questions,
            url=url,
            as_json=as_json,
            frames=frames is not False,
            from_=from_,
            to=to,
            part_s=part_s,
            pictures=pictures,
            sampler=sampler,
            notes_chars=notes_chars,
            real_time=real_time,
            model=model,
            ears=ears,
            ears_language=ears_language,
            engine=engine,
            config=config,
            api_key=api_key,
        )
    from headstart.talk.client import TalkOptions
    from headstart.talk.run import TalkCommand, run

    of_ask = (from_, to, part_s, pictures, sampler, notes_chars, real_time)
    if of_ask != (None, None, 30.0, 12, "change", 6000, False):
        raise typer.BadParameter(
            "--from, --to, --part-s, --pictures, --sampler, --notes-chars and --real-time go with "
            "--ask QUESTION, or with `headstart ask FILE QUESTION`"
        )
    for flag, is_given in (("--webrtc", webrtc), ("--speak", speak)):
        if is_given and fast:
            raise typer.BadParameter(f"{flag} is always in real time: leave out --fast")
    arguments = _own_server(ears, ears_language, engine, config)
    _check_url("talk", url, (["--stay"] if stay else []) + arguments)
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


def server_arguments(flags: Mapping[str, object]) -> list[str]:
    """Arguments for a server that a command starts: those of `flags` that were given, one with a
    list once for each of its values."""
    words = []
    for flag, value in flags.items():
        for each in value if isinstance(value, list) else [value]:
            words += [] if each is None else [flag, str(each)]
    return words


def _own_server(
    ears: str | None, language: str | None, engine: str | None, config: Path | None
) -> list[str]:
    flags = {"--ears": ears, "--ears-language": language, "--engine": engine, "--config": config}
    return server_arguments(flags)


def _check_url(command: str, url: str | None, of_own_server: list[str]) -> None:
    """Refuse what is for a server of our own beside the address of another."""
    if url is not None and of_own_server:
        raise typer.BadParameter(
            f"{of_own_server[0]} is for the server that {command} starts: leave out --url, or give "
            "it to the `headstart serve` behind that address"
        )


def _time(flag: str, text: str | None) -> float | None:
    """A time that a flag was given, in s."""
    from headstart.talk.media.times import BadTime, parse_time

    try:
        return None if text is None else parse_time(text)
    except BadTime as error:
        raise typer.BadParameter(f"{flag}: {error}") from None
