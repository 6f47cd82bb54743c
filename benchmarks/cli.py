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
    as_json: bool = Json,
) -> None:
    """Endpoint to first token with 5, 15 and 60 s already heard, against prefill at the end."""
    from benchmarks import ttft as benchmark

    benchmark.run(model, repeats, with_peers=peers, as_json=as_json)


@app.command()
def decode(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Decode and prefill speed of one stream, beside llama.cpp."""
    from benchmarks import decode as benchmark

    benchmark.run(model, repeats, as_json=as_json)


@app.command("all")
def run_all(model: str = Model, repeats: int = Repeats, as_json: bool = Json) -> None:
    """Every benchmark, one JSON line each."""
    decode(model, repeats, as_json)
    ttft(model, repeats, True, as_json)
