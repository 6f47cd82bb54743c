"""`headstart bench NAME`: progress on stderr, one JSON line at the end of stdout."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from headstart.benchmarks import report
from headstart.benchmarks.engine.cli import published, target
from headstart.benchmarks.gpu.cli import gpu
from headstart.benchmarks.server.cli import conversations, live, start
from headstart.engine.errors import EngineError

app = typer.Typer(
    help="Run a benchmark; each ends in one JSON line.", no_args_is_help=True, add_completion=False
)

Model = typer.Option("tiny", "--model", help="medium, small or tiny")
Small = typer.Option("small", "--model", help="medium, small or tiny")
Repeats = typer.Option(5, "--repeats", min=1, help="runs; the median is reported")
Clips = typer.Argument(help="a file of lines `path TAB text`", exists=True, dir_okay=False)
ClipFolder = typer.Option(Path("build/conditions"), "--folder", help="where clips are kept")
PeerFolder = typer.Option(
    Path("build/peers"), "--folder", help="where clips, environments and logs are kept"
)
VideoFolder = typer.Option(Path("build/video"), "--folder", help="where videos are kept")
LogFile = typer.Option(None, "--log", help="where the server's log goes")
SomeClips = typer.Argument(None, help="a file of lines `path TAB text`: recordings as well")
ConditionNames = typer.Option([], "--condition", help="only this one; may be repeated")
Heard = typer.Option(None, "--notes", help="keep in FILE what was heard, and go on behind it")
Notes = typer.Option(None, "--notes", help="write recorded turns to FILE, or read them from it")
JsonLines = typer.Option(None, "--notes", help="append one JSON line per sound to FILE")
People = typer.Option(
    [], "--people", help="LIST of one person's recordings, lines `path TAB text`; may be repeated"
)
Svg = typer.Option(None, "--svg", help="write the curves to FILE")
Json = typer.Option(False, "--json", help="print nothing on stdout but the JSON line")


@app.command()
def ttft(
    model: str = Model,
    repeats: int = Repeats,
    peers: bool = typer.Option(True, help="measure transformers and llama.cpp as well"),
    contexts: str = typer.Option("5,15,60", help="seconds of speech before, separated by commas"),
    as_json: bool = Json,
) -> None:
    """Endpoint to first token after 5, 15 and 60 s of speech, against prefill at the end."""
    from headstart.benchmarks.engine import ttft as benchmark

    try:
        contexts_s = [float(word) for word in contexts.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected comma-separated numbers, got {contexts!r}") from None
    benchmark.run(model, repeats, contexts_s=contexts_s, with_peers=peers, as_json=as_json)


@app.command()
def backend(
    model: str = Model,
    repeats: int = typer.Option(3, "--repeats", min=1, help="runs; the median is reported"),
    servers: str = typer.Option("llamacpp,vllm", help="which, separated by commas"),
    contexts: str = typer.Option("5,15,60", help="seconds of speech before, separated by commas"),
    sessions: str = typer.Option("1,2,4,8", help="sessions at once, separated by commas"),
    as_json: bool = Json,
) -> None:
    """Endpoint to first token behind vLLM and llama.cpp, words sent ahead or not."""
    from headstart.benchmarks.llm_servers import backend as benchmark
    from headstart.benchmarks.llm_servers.servers import NAMES

    names = [name.strip() for name in servers.split(",")]
    if unknown := sorted(set(names) - set(NAMES)):
        raise typer.BadParameter(f"expected some of {', '.join(NAMES)}, got {unknown[0]!r}")
    try:
        contexts_s = [float(word) for word in contexts.split(",")]
        counts = [int(word) for word in sessions.split(",")]
    except ValueError:
        got = f"{contexts!r} and {sessions!r}"
        raise typer.BadParameter(f"expected comma-separated numbers, got {got}") from None
    benchmark.run(names, model, repeats, contexts_s=contexts_s, sessions=counts, as_json=as_json)


@app.command()
def simulate(
    sessions: int = typer.Option(0, min=0, help="one run with so many people; 0: all runs"),
    nodes: int = typer.Option(1, min=1, max=1000, help="of that run"),
    kind: str = typer.Option("h100", help="of its nodes: cpu, l40s, h100 or h200"),
    placement: str = typer.Option(
        "rendezvous", help="of that run: rendezvous, least_sessions or round_robin"
    ),
    ahead: bool = typer.Option(True, help="prefill while people speak, or at the endpoint"),
    admission: bool = typer.Option(True, help="refuse what a node is not sized for"),
    seconds: float = typer.Option(60.0, min=30, help="of virtual time"),
    seed: int = typer.Option(1, help="the same seed gives the same rows"),
    calibrate: str = typer.Option("", help="measure the CPU's costs first, on this model"),
    svg: Path | None = Svg,
    as_json: bool = Json,
) -> None:
    """Ten to ten thousand sessions on 1 to 200 nodes, in virtual time."""
    from headstart.benchmarks.simulation import command
    from headstart.benchmarks.simulation.costs import KINDS
    from headstart.benchmarks.simulation.policies import PLACEMENTS, Policy
    from headstart.benchmarks.simulation.setup import Setup

    if kind not in KINDS:
        raise typer.BadParameter(f"expected one of {', '.join(KINDS)}, got {kind!r}")
    if placement not in PLACEMENTS:
        raise typer.BadParameter(f"expected one of {', '.join(PLACEMENTS)}, got {placement!r}")
    policy = Policy(placement=placement, ahead=ahead, admission=admission)
    setup = Setup(KINDS[kind], nodes, sessions, seconds=seconds, policy=policy, seed=seed)
    only = setup if sessions else None
    command.run(seed=seed, only=only, model=calibrate or None, picture=svg, as_json=as_json)


@app.command()
def decode(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Decode and prefill speed of one stream, beside llama.cpp."""
    from headstart.benchmarks.engine import decode as benchmark

    benchmark.run(model, repeats, as_json=as_json)


@app.command()
def encoders(repeats: int = Repeats, as_json: bool = Json) -> None:
    """How long pictures of one session hold up another's answer, encoded within steps or beside."""
    from headstart.benchmarks.engine import encoders as benchmark

    benchmark.run(repeats, as_json=as_json)


@app.command("compile")
def compiled(as_json: bool = Json) -> None:
    """What torch.compile gains for each encoder, and what it costs."""
    from headstart.benchmarks.engine import compiled as benchmark

    benchmark.run(as_json=as_json)


@app.command()
def wer(
    clips: Path = Clips,
    chunk_ms: int = typer.Option(500, min=20, max=5000, help="length of audio chunks, ms"),
    ears: str = typer.Option("whisper-tiny.en", help="a Whisper's folder, or weights by name"),
    language: str = typer.Option("en", "--ears-language", help="language code, or auto"),
    limit: int = typer.Option(0, min=0, help="use only the first N clips; 0: all"),
    noise_s: float = typer.Option(0.0, min=0, help="seconds of each kind of noise; 0: none"),
    listener: bool = typer.Option(False, "--listener", help="go through packets, VAD and pauses"),
    show_clips: bool = typer.Option(False, "--clips", help="print where ours and offline differ"),
    as_json: bool = Json,
) -> None:
    """Word error rate of streaming, beside the same Whisper offline on the same clips."""
    from headstart.benchmarks.hearing import wer as benchmark

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
    kinds: str = typer.Option("", "--kinds", help="only these, such as babble,pink; none: all"),
    names: list[str] = ConditionNames,
    draws: int = typer.Option(1, "--draws", min=1, help="of what is random, for each clip"),
    notes: Path | None = Heard,
    chunk_ms: int = typer.Option(500, min=20, max=5000, help="sound heard at once, ms"),
    ears: str = typer.Option("whisper-tiny.en", help="a Whisper's folder, or weights by name"),
    as_json: bool = Json,
) -> None:
    """Sentences heard right under 36 conditions, beside the same Whisper offline."""
    from headstart.benchmarks.hearing import conditions as benchmark
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    if half not in benchmark.HALVES:
        raise typer.BadParameter(f"expected one of {', '.join(benchmark.HALVES)}, got {half!r}")
    try:
        benchmark.run(
            folder,
            half,
            sample,
            kinds=[name for name in kinds.split(",") if name],
            names=names,
            draws=draws,
            ears=ears,
            chunk_ms=chunk_ms,
            notes=notes,
            as_json=as_json,
        )
    except (ValueError, EngineError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def prompts(folder: Path, suffix: str = typer.Argument("wav", help="wav or g722")) -> None:
    """Print a LIST for `wer`: the even half of Asterisk's prompts under FOLDER."""
    from headstart.benchmarks.inputs.prompts import asterisk_prompts

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
    from headstart.benchmarks.inputs.spoken import PARTS
    from headstart.benchmarks.inputs.spoken import spoken as said

    if part not in PARTS:
        raise typer.BadParameter(f"expected one of {', '.join(PARTS)}, got {part!r}")
    for path, text in said(folder, part):
        print(f"{path.resolve()}\t{text}")


@app.command()
def loss(
    rounds: int = typer.Option(1, "--rounds", min=1, max=5, help="repetitions of 21 s of speech"),
    words: bool = typer.Option(True, help="transcribe the output with Whisper"),
    as_json: bool = Json,
) -> None:
    """Speech over WebRTC with 0 to 10 % packet loss, beside aiortc's own receiver."""
    from headstart.benchmarks.gateway import loss as benchmark

    benchmark.run(rounds, with_words=words, as_json=as_json)


@app.command()
def endpoint(
    people: list[Path] = People,
    notes: Path | None = Notes,
    model: str = Small,
    svg: Path | None = Svg,
    tune: bool = typer.Option(False, "--tune", help="search for better settings"),
    as_json: bool = Json,
) -> None:
    """What people suffer at the end of a turn under each policy: waits, false starts, halves."""
    from headstart.benchmarks.turns import endpoint as benchmark
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    try:
        benchmark.run(people, notes, model, tune=tune, svg=svg, as_json=as_json)
    except (ValueError, OSError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def overlap(
    clips: Path | None = SomeClips,
    half: str = typer.Option("held-out", "--half", help="held-out, fresh or development"),
    notes: Path | None = JsonLines,
    words: bool = typer.Option(False, "--words", help="judge the final words only: much faster"),
    going_on: bool = typer.Option(False, "--going-on", help="by the rule behind an early end"),
    model: str = Small,
    as_json: bool = Json,
) -> None:
    """Which sounds interrupt an answer, and how soon that is decided."""
    from headstart.benchmarks.turns import overlap as benchmark
    from headstart.benchmarks.turns.overlap_sounds import HALVES
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    if half not in HALVES:
        raise typer.BadParameter(f"expected one of {', '.join(HALVES)}, got {half!r}")
    try:
        if words:
            benchmark.run_words(half, clips, as_json=as_json)
        else:
            benchmark.run(model, half, clips, notes, going_on=going_on, as_json=as_json)
    except (ValueError, OSError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def peers(
    folder: Path = PeerFolder,
    systems: str = typer.Option("", "--systems", help="separated by commas; none: all"),
    clips: int = typer.Option(20, "--clips", min=1, help="spoken questions, half with a pause"),
    rounds: int = typer.Option(1, "--rounds", min=1, help="how often each system is started"),
    cores: int = typer.Option(2, "--cores", min=1, help="cores that all processes share"),
    calm: float = typer.Option(
        0.0, "--calm", min=0, help="wait before a clip while others use this many cores; 0: never"
    ),
    as_json: bool = Json,
) -> None:
    """Pipecat and speech-to-speech of local parts beside ours: the same clips, weights, cores."""
    from headstart.benchmarks.peers import run as benchmark
    from headstart.gateway.tts.synthesiser import VoiceUnavailable

    names = tuple(systems.split(",")) if systems else benchmark.SYSTEMS
    try:
        options = benchmark.Options(folder, names, clips, rounds, cores, calm)
        benchmark.run(options, as_json=as_json)
    except (ValueError, EngineError, VoiceUnavailable) as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def soak(
    model: str = typer.Option("tiny", "--model", help="small, tiny, or fake: the gateway alone"),
    sessions: int = typer.Option(20, "--sessions", min=1, max=60, help="concurrent clients"),
    minutes: float = typer.Option(60.0, "--minutes", min=0, help="sample clock, at full speed"),
    live_minutes: float = typer.Option(10.0, "--live-minutes", min=0, help="in real time"),
    at_most: float = typer.Option(0.0, "--at-most", min=0, help="limit in minutes; 0: none"),
    faults_after_s: float = typer.Option(60.0, "--faults-after", help="pause before each; 0: none"),
    seed: int = typer.Option(1, "--seed", help="seed of all random choices"),
    log: Path | None = LogFile,
    as_json: bool = Json,
) -> None:
    """Soak test: an hour of hostile clients, networks and faults, and what leaks afterwards."""
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
    """What the model says it sees, on photographs from packages."""
    from headstart.benchmarks.inputs.photos import PhotosMissing
    from headstart.benchmarks.vision import eyes as benchmark

    try:
        benchmark.run(model, as_json=as_json)
    except PhotosMissing as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def frames(
    model: str = Small,
    videos: str = typer.Option("", help="some of the videos, separated by commas; empty: all"),
    svg: Path | None = Svg,
    as_json: bool = Json,
) -> None:
    """Frame policies against 64 uniform frames, on videos from packages."""
    from headstart.benchmarks.inputs.photos import PhotosMissing
    from headstart.benchmarks.vision import frames as benchmark

    names = [name.strip() for name in videos.split(",")] if videos else []
    try:
        benchmark.run(model, names, picture=svg, as_json=as_json)
    except (FileNotFoundError, PhotosMissing) as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def video(
    model: str = Small,
    minutes: str = typer.Option("2,10", help="lengths, separated by commas"),
    half: str = typer.Option("report", help="choose or report"),
    sampler: str = typer.Option("change", help="how pictures are chosen"),
    folder: Path = VideoFolder,
    as_json: bool = Json,
) -> None:
    """Questions about long videos: right answers, time, and memory of client and server. `--model
    none` only compares the ways to choose pictures."""
    from headstart.benchmarks.inputs.photos import PhotosMissing
    from headstart.benchmarks.vision import video as benchmark
    from headstart.gateway.video.file_sampling import POLICIES

    if half not in (benchmark.CHOOSE, benchmark.REPORT):
        raise typer.BadParameter(f"expected choose or report, got {half!r}")
    policy = next((name for name in POLICIES if name == sampler), None)
    if policy is None:
        raise typer.BadParameter(f"expected {', '.join(POLICIES)}, got {sampler!r}")
    try:
        lengths = [float(word) for word in minutes.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected comma-separated numbers, got {minutes!r}") from None
    try:
        benchmark.run(model, lengths, half, folder, policy, as_json=as_json)
    except (PhotosMissing, FileNotFoundError) as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def tokens(
    model: str = Small,
    repeats: int = 3,
    choose: bool = False,
    only_sizes: bool = typer.Option(False, "--sizes", help="only frames' sizes, and the ladder"),
    as_json: bool = Json,
) -> None:
    """What fewer tokens of a picture lose and save."""
    from headstart.benchmarks.inputs.photos import PhotosMissing
    from headstart.benchmarks.vision import tokens as benchmark

    try:
        benchmark.run(model, repeats, choose=choose, only_sizes=only_sizes, as_json=as_json)
    except (PhotosMissing, FileNotFoundError) as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def thinning(
    model: str = Small,
    half: str = typer.Option("report", "--half", help="of the dialogs: choose or report"),
    as_json: bool = Json,
) -> None:
    """What it saves and changes to evict words of past turns by attention."""
    from headstart.benchmarks.engine import thinning as benchmark
    from headstart.benchmarks.inputs.photos import PhotosMissing

    try:
        benchmark.run(model, half, as_json=as_json)
    except PhotosMissing as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def cache(model: str = Small, as_json: bool = Json) -> None:
    """The same video a second time, in the same session and in another."""
    from headstart.benchmarks.vision import cache as benchmark

    try:
        benchmark.run(model, as_json=as_json)
    except FileNotFoundError as error:
        report.say(str(error))
        raise typer.Exit(1) from None


@app.command()
def session(
    model: str = Model,
    hours: float = typer.Option(3.0, min=0.05, help="length of the conversation"),
    real_ears: bool = typer.Option(False, help="speech through Whisper, not from a script: slow"),
    window: int = typer.Option(0, min=0, help="context window in tokens; 0: the model's context"),
    as_json: bool = Json,
) -> None:
    """A conversation of hours at full speed: memory and time per chunk, minute by minute."""
    from headstart.benchmarks.engine import session as benchmark

    benchmark.run(model, hours, real_ears=real_ears, as_json=as_json, window=window)


@app.command()
def gateway(
    kinds: str = typer.Option("ws,webrtc", help="kinds of clients, separated by commas"),
    most: int = typer.Option(600, "--most", min=1, help="maximum number of sessions"),
    floods: bool = typer.Option(True, help="finally let one session misbehave"),
    as_json: bool = Json,
) -> None:
    """Sessions that one core of the gateway sustains, and the effect of a flood on them."""
    from headstart.benchmarks.gateway import capacity as benchmark

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
    """Quality of answers to fifty everyday questions, and twenty held out."""
    from headstart.benchmarks.engine import answers as benchmark

    benchmark.run(model, write=write, as_json=as_json)


@app.command()
def kv(
    model: str = Small,
    repeats: int = typer.Option(20, "--repeats", min=1, help="steps; the median is reported"),
    kinds: str = typer.Option("fp32,fp16,int8,fp8", help="comma-separated; first is the baseline"),
    by_modality: bool = typer.Option(False, help="pictures alone in fewer bytes, in place of that"),
    as_json: bool = Json,
) -> None:
    """K and V in fewer bytes: error, unchanged answers, memory and speed."""
    from headstart.benchmarks.engine import kv as benchmark

    names = tuple(kinds.split(","))
    if not set(names) <= set(benchmark.KINDS):
        raise typer.BadParameter(f"expected some of {', '.join(benchmark.KINDS)}, got {kinds!r}")
    if by_modality and names != tuple(benchmark.KINDS):
        raise typer.BadParameter(f"--by-modality has kinds of its own: leave out --kinds {kinds}")
    benchmark.run(model, repeats, names, by_modality=by_modality, as_json=as_json)


@app.command()
def voice(
    voices: str = typer.Option("joe,espeak", help="comma-separated; the first is the main one"),
    as_json: bool = Json,
) -> None:
    """Speech output: first clause to first sound, speed, and intelligibility to our recogniser."""
    from headstart.benchmarks.gateway import voice as benchmark

    names = tuple(voices.split(","))
    if not set(names) <= {"joe", "espeak"}:
        raise typer.BadParameter(f"expected joe, espeak or both, got {voices!r}")
    benchmark.run(names, as_json=as_json)


@app.command()
def dashboard(
    seconds: float = typer.Option(20.0, "--seconds", min=1, help="of each phase"),
    rounds: int = typer.Option(3, "--rounds", min=1, help="phases of each number of watchers"),
    soak_minutes: float = typer.Option(5.0, "--soak-minutes", min=0.1, help="for memory"),
    as_json: bool = Json,
) -> None:
    """What the dashboard costs the gateway with 0, 1 and 10 watchers, and whether it grows."""
    from headstart.benchmarks.gateway import dashboard as benchmark

    benchmark.run(seconds, rounds, soak_minutes, as_json=as_json)


@app.command("dashboard-page")
def dashboard_page(
    minutes: float = typer.Option(60.0, "--soak-minutes", min=0.1, help="the page is left open"),
    dwell_s: float = typer.Option(20.0, "--dwell", min=1, help="seconds on each screen"),
    as_json: bool = Json,
) -> None:
    """The dashboard's page open in a real Chromium: what it costs, and whether it grows."""
    from headstart.benchmarks.gateway import dashboard_page as benchmark

    benchmark.run(minutes, dwell_s, as_json=as_json)


app.command()(gpu)
app.command()(published)
app.command()(target)
app.command()(live)
app.command()(conversations)
app.command()(start)


@app.command("all")
def run_all(model: str = Small, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Run every benchmark that needs no list of clips, one JSON line each."""
    decode(model, repeats, as_json)
    ttft(model, repeats, True, "5,15,60", as_json)
    live(4, model, 60.0, 10.0, as_json)
    start(model, 5, True, as_json)
    eyes(model, as_json)
    frames(model, "", None, as_json)
    cache(model, as_json)
    session("tiny", 3.0, False, 0, as_json)
    answers(model, False, as_json)
    kv(model, 20, "fp32,fp16,int8,fp8", False, as_json)
    loss(1, True, as_json)
    gateway("ws,webrtc", 600, True, as_json)
    dashboard(20.0, 3, 5.0, as_json)
    endpoint([], None, "small", None, False, as_json)
    overlap(None, "held-out", None, False, False, "small", as_json)
    voice("joe,espeak", as_json)
