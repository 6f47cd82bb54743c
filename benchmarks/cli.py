"""`headstart bench NAME`: progress on stderr, and one JSON line at the end of stdout."""

from __future__ import annotations

import typer

app = typer.Typer(help="Run a benchmark; each ends in one JSON line.", no_args_is_help=True)

Model = typer.Option("tiny", "--model", help="small or tiny")
Repeats = typer.Option(5, "--repeats", min=1, help="runs of which the median counts")
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
    from benchmarks import ttft as benchmark

    try:
        contexts_s = [float(word) for word in contexts.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers with commas, got {contexts!r}") from None
    benchmark.run(model, repeats, contexts_s=contexts_s, with_peers=peers, as_json=as_json)


@app.command()
def decode(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Decode and prefill speed of one stream, beside llama.cpp."""
    from benchmarks import decode as benchmark

    benchmark.run(model, repeats, as_json=as_json)


@app.command()
def live(
    sessions: int = typer.Option(4, "--sessions", min=1, help="people who speak at once"),
    model: str = typer.Option("small", "--model", help="small or tiny"),
    seconds: float = typer.Option(60.0, "--seconds", min=1, help="measured"),
    warm_up: float = typer.Option(10.0, "--warm-up", min=0, help="seconds before, not measured"),
    as_json: bool = Json,
) -> None:
    """Several people at once who speak without pause, through the real server in real time."""
    from benchmarks import live as benchmark

    benchmark.run(model, sessions, seconds, warm_up, as_json=as_json)


@app.command("all")
def run_all(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Every benchmark, one JSON line each."""
    decode(model, repeats, as_json)
    ttft(model, repeats, True, "5,15,60", as_json)
