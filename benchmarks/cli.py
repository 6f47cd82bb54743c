"""`headstart bench NAME`: progress on stderr, and one JSON line at the end of stdout."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from headstart.benchmarks import report
from headstart.engine.errors import EngineError

app = typer.Typer(
    help="Run a benchmark; each ends in one JSON line.", no_args_is_help=True, add_completion=False
)

Model = typer.Option("tiny", "--model", help="medium, small or tiny")
Small = typer.Option("small", "--model", help="medium, small or tiny")
Repeats = typer.Option(5, "--repeats", min=1, help="runs of which the median counts")
Clips = typer.Argument(help="a file of lines `path TAB text`", exists=True, dir_okay=False)
ClipFolder = typer.Option(Path("build/conditions"), "--folder", help="where clips are kept")
LogFile = typer.Option(None, "--log", help="where the server's log goes")
SomeClips = typer.Argument(None, help="a file of lines `path TAB text`: recordings as well")
Notes = typer.Option(None, "--notes", help="keep what was heard in FILE, or read it from there")
JsonLines = typer.Option(None, "--notes", help="append a JSON line for each sound to FILE")
Svg = typer.Option(None, "--svg", help="write the curves to FILE")
Json = typer.Option(False, "--json", help="nothing on stdout but the JSON line")


@app.command()
def ttft(
    model: str = Model,
    repeats: int = Repeats,
    peers: bool = typer.Option(True, help="measure transformers and llama.cpp as well"),
    contexts: str = typer.Option("5,15,60", help="seconds of speech already heard, with commas"),
    as_json: bool = Json,
) -> None:
    """Endpoint to first token with 5, 15 and 60 s already heard, against prefill at the end."""
    from headstart.benchmarks import ttft as benchmark

    try:
        contexts_s = [float(word) for word in contexts.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers with commas, got {contexts!r}") from None
    benchmark.run(model, repeats, contexts_s=contexts_s, with_peers=peers, as_json=as_json)


@app.command()
def decode(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Decode and prefill speed of one stream, beside llama.cpp."""
    from headstart.benchmarks import decode as benchmark

    benchmark.run(model, repeats, as_json=as_json)


@app.command()
def wer(
    clips: Path = Clips,
    chunk_ms: int = typer.Option(500, min=20, max=5000, help="sound heard at once, ms"),
    ears: str = typer.Option("whisper-tiny.en", help="a Whisper's folder, or weights by name"),
    language: str = typer.Option("en", "--ears-language", help="what is spoken: a code, or auto"),
    limit: int = typer.Option(0, min=0, help="only the first so many clips; 0: all"),
    noise_s: float = typer.Option(0.0, min=0, help="seconds of each kind of noise; 0: none"),
    listener: bool = typer.Option(False, "--listener", help="packets, voice detector, hushes too"),
    show_clips: bool = typer.Option(False, "--clips", help="print where ours and offline differ"),
    as_json: bool = Json,
) -> None:
    """Words heard wrong while streaming, beside the same Whisper offline on the same clips."""
    from headstart.benchmarks import wer as benchmark

    try:
        benchmark.run(
            clips,
            chunk_ms,
            ears=ears,
            language=language,
            limit=limit,
            noise_s=noise_s,
            by_listener=listener,
            show_clips=show_clips,
            as_json=as_json,
        )
    except (ValueError, EngineError) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def conditions(
    folder: Path = ClipFolder,
    half: str = typer.Option("report", "--half", help="of the sentences: choose or report"),
    sample: int = typer.Option(0, "--sample", min=0, help="only so many sentences; 0: all"),
    notes: Path | None = Notes,
    chunk_ms: int = typer.Option(500, min=20, max=5000, help="sound heard at once, ms"),
    ears: str = typer.Option("whisper-tiny.en", help="a Whisper's folder, or weights by name"),
    as_json: bool = Json,
) -> None:
    """Sentences heard right under 36 conditions, beside the same Whisper offline."""
    from headstart.benchmarks import conditions as benchmark
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    if half not in benchmark.HALVES:
        raise typer.BadParameter(f"expected one of {', '.join(benchmark.HALVES)}, got {half!r}")
    try:
        benchmark.run(
            folder, half, sample, ears=ears, chunk_ms=chunk_ms, notes=notes, as_json=as_json
        )
    except (ValueError, EngineError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def prompts(folder: Path, suffix: str = typer.Argument("wav", help="wav or g722")) -> None:
    """Print a LIST for `wer`: the even half of Asterisk's prompts under FOLDER."""
    from headstart.benchmarks.prompts import asterisk_prompts

    try:
        for path, text in asterisk_prompts(folder, suffix):
            print(f"{path.resolve()}\t{text}")
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def spoken(
    folder: Path, part: str = typer.Argument("choose", help="choose, report or questions")
) -> None:
    """Print a LIST for `wer`: numbers, repetitions, questions by packaged voices, into FOLDER."""
    from headstart.benchmarks.spoken import PARTS
    from headstart.benchmarks.spoken import spoken as said

    if part not in PARTS:
        raise typer.BadParameter(f"expected one of {', '.join(PARTS)}, got {part!r}")
    for path, text in said(folder, part):
        print(f"{path.resolve()}\t{text}")


@app.command()
def live(
    sessions: int = typer.Option(4, "--sessions", min=1, help="people who speak at once"),
    model: str = Small,
    seconds: float = typer.Option(60.0, "--seconds", min=1, help="measured"),
    warm_up: float = typer.Option(10.0, "--warm-up", min=0, help="seconds before, not measured"),
    as_json: bool = Json,
) -> None:
    """Several people at once who speak without pause, through the real server in real time."""
    from headstart.benchmarks import live as benchmark

    benchmark.run(model, sessions, seconds, warm_up, as_json=as_json)


@app.command()
def loss(
    rounds: int = typer.Option(1, "--rounds", min=1, max=5, help="times 21 s of speech"),
    words: bool = typer.Option(True, help="let Whisper read what came out"),
    as_json: bool = Json,
) -> None:
    """Speech over WebRTC with 0 to 10 % of the packets lost, beside aiortc's own receiver."""
    from headstart.benchmarks import loss as benchmark

    benchmark.run(rounds, with_words=words, as_json=as_json)


@app.command()
def endpoint(
    clips: Path | None = SomeClips,
    notes: Path | None = Notes,
    model: str = Small,
    svg: Path | None = Svg,
    speakers: int = typer.Option(16, "--speakers", min=1, help="of 8 turns each"),
    tune: bool = typer.Option(False, "--tune", help="look for better settings on the tuned half"),
    as_json: bool = Json,
) -> None:
    """Turns cut off in a pause against the wait at their end, for each endpoint policy."""
    from headstart.benchmarks import endpoint as benchmark
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    try:
        benchmark.run(clips, notes, model, speakers, tune=tune, svg=svg, as_json=as_json)
    except (ValueError, OSError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def overlap(
    clips: Path | None = SomeClips,
    half: str = typer.Option("held-out", "--half", help="held-out or development"),
    notes: Path | None = JsonLines,
    words: bool = typer.Option(False, "--words", help="judge the final words alone: much faster"),
    model: str = Small,
    as_json: bool = Json,
) -> None:
    """What interrupts an answer and what does not, and how soon that is known."""
    from headstart.benchmarks import overlap as benchmark
    from headstart.benchmarks.overlap_sounds import HALVES
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    if half not in HALVES:
        raise typer.BadParameter(f"expected one of {', '.join(HALVES)}, got {half!r}")
    try:
        if words:
            benchmark.run_words(half, clips, as_json=as_json)
        else:
            benchmark.run(model, half, clips, notes, as_json=as_json)
    except (ValueError, OSError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def soak(
    model: str = typer.Option("tiny", "--model", help="small, tiny, or fake: the gateway alone"),
    sessions: int = typer.Option(20, "--sessions", min=1, max=60, help="people at once"),
    minutes: float = typer.Option(60.0, "--minutes", min=0, help="of sample clock, fast"),
    live_minutes: float = typer.Option(10.0, "--live-minutes", min=0, help="in real time"),
    at_most: float = typer.Option(0.0, "--at-most", min=0, help="minutes that may take; 0: any"),
    faults_after_s: float = typer.Option(60.0, "--faults-after", help="pause before each; 0: none"),
    seed: int = typer.Option(1, "--seed", help="of everything that is drawn"),
    log: Path | None = LogFile,
    as_json: bool = Json,
) -> None:
    """An hour of people, clients and networks at their worst: what is left when they have gone."""
    from headstart.benchmarks.soak.run import Options, run

    options = Options(
        model,
        sessions,
        minutes,
        live_minutes,
        faults_after_s or None,
        seed,
        fast_phase_max_s=at_most * 60 or math.inf,
        log=log,
    )
    if not run(options, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def eyes(model: str = Small, as_json: bool = Json) -> None:
    """What the model says it sees, on photographs that packages ship."""
    from headstart.benchmarks import eyes as benchmark
    from headstart.benchmarks.photos import PhotosMissing

    try:
        benchmark.run(model, as_json=as_json)
    except PhotosMissing as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def frames(model: str = Small, as_json: bool = Json) -> None:
    """What sampling by scene saves against 64 uniform frames, on videos that a package ships."""
    from headstart.benchmarks import frames as benchmark

    try:
        benchmark.run(model, as_json=as_json)
    except FileNotFoundError as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def cache(model: str = Small, as_json: bool = Json) -> None:
    """A second look at the same video against the first, in the same session and in another."""
    from headstart.benchmarks import cache as benchmark

    try:
        benchmark.run(model, as_json=as_json)
    except FileNotFoundError as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def session(
    model: str = Model,
    hours: float = typer.Option(3.0, min=0.05, help="how long the conversation lasts"),
    real_ears: bool = typer.Option(False, help="speech through Whisper, not from a script: slow"),
    window: int = typer.Option(0, min=0, help="tokens remembered; 0: the model's context"),
    as_json: bool = Json,
) -> None:
    """A conversation of hours at full speed: memory and time per chunk, minute by minute."""
    from headstart.benchmarks import session as benchmark

    benchmark.run(model, hours, real_ears=real_ears, as_json=as_json, window=window)


@app.command()
def gateway(
    kinds: str = typer.Option("ws,webrtc", help="which clients, with commas"),
    most: int = typer.Option(600, "--most", min=1, help="sessions tried, at most"),
    floods: bool = typer.Option(True, help="then let one session misbehave"),
    as_json: bool = Json,
) -> None:
    """Sessions that one core of the gateway carries, and what a flood does to them."""
    from headstart.benchmarks import gateway as benchmark

    wanted = kinds.split(",") if kinds else []
    if not set(wanted) <= set(benchmark.STEPS):
        raise typer.BadParameter(f"expected ws, webrtc or both, got {kinds!r}")
    benchmark.run(wanted, most, floods=floods, as_json=as_json)


@app.command()
def answers(
    model: str = Small,
    write: bool = typer.Option(False, "--write", help="write docs/answers-MODEL.md"),
    as_json: bool = Json,
) -> None:
    """What the model answers to fifty things that people say, and twenty held out."""
    from headstart.benchmarks import answers as benchmark

    benchmark.run(model, write=write, as_json=as_json)


@app.command()
def kv(
    model: str = Small,
    repeats: int = typer.Option(20, "--repeats", min=1, help="steps of which the median counts"),
    kinds: str = typer.Option("fp32,fp16,int8,fp8", help="with commas; the first is the measure"),
    as_json: bool = Json,
) -> None:
    """K and V in fewer bytes: error, answers that stay the same, memory and speed."""
    from headstart.benchmarks import kv as benchmark

    names = tuple(kinds.split(","))
    if not set(names) <= set(benchmark.KINDS):
        raise typer.BadParameter(f"expected some of {', '.join(benchmark.KINDS)}, got {kinds!r}")
    benchmark.run(model, repeats, names, as_json=as_json)


@app.command()
def voice(
    voices: str = typer.Option("joe,espeak", help="which, with commas; the first one counts"),
    as_json: bool = Json,
) -> None:
    """First clause to first sound, speed, and whether our own ears understand it."""
    from headstart.benchmarks import voice as benchmark

    names = tuple(voices.split(","))
    if not set(names) <= {"joe", "espeak"}:
        raise typer.BadParameter(f"expected joe, espeak or both, got {voices!r}")
    benchmark.run(names, as_json=as_json)


@app.command("all")
def run_all(model: str = Small, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Every benchmark that needs no list of yours, one JSON line each."""
    decode(model, repeats, as_json)
    ttft(model, repeats, True, "5,15,60", as_json)
    live(4, model, 60.0, 10.0, as_json)
    eyes(model, as_json)
    frames(model, as_json)
    cache(model, as_json)
    session("tiny", 3.0, False, 0, as_json)
    answers(model, False, as_json)
    kv(model, 20, "fp32,fp16,int8,fp8", as_json)
    loss(1, True, as_json)
    gateway("ws,webrtc", 600, True, as_json)
    endpoint(None, None, "small", None, 16, False, as_json)
    overlap(None, "held-out", None, False, "small", as_json)
    voice("joe,espeak", as_json)
