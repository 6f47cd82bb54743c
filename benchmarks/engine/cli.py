"""`headstart bench published` and `target`, as the command line has them."""

from __future__ import annotations

from pathlib import Path

import typer

from headstart.benchmarks import report
from headstart.engine.errors import EngineError

Json = typer.Option(False, "--json", help="print nothing on stdout but the JSON line")
Folder = typer.Option(
    Path("build/published"), "--folder", help="where directories are kept: 8, 17 or 25 GB"
)


def published(
    model: str = typer.Argument(help="qwen2.5-vl-3b, qwen2.5-vl-7b or pixtral-12b"),
    folder: Path = Folder,
    encoder_weights: str = typer.Option("auto", help="auto (as stored) or int8"),
    as_json: bool = Json,
) -> None:
    """A model in its published size with random weights: loaded from a directory, and asked."""
    from headstart.benchmarks.engine import published as benchmark
    from headstart.benchmarks.engine.random_directory import DirectoryFailed
    from headstart.engine.models.checkpoint.errors import NotEnoughMemory

    try:
        benchmark.run(model, folder, encoder_weights, as_json=as_json)
    except (DirectoryFailed, NotEnoughMemory, OSError) as error:
        report.say(f"headstart: {error}")
        raise typer.Exit(1) from None
    except (ValueError, EngineError) as error:
        raise typer.BadParameter(str(error)) from None


def target(
    model: str = typer.Option("small", "--model", help="medium, small or tiny"),
    batches: int = typer.Option(24, min=1, help="of each phase, behind those that settle"),
    baseline: bool = typer.Option(True, help="without a target as well"),
    as_json: bool = Json,
) -> None:
    """Encoder batches and steps that follow a target time, beside more and less work of others."""
    from headstart.benchmarks.engine import target as benchmark

    benchmark.run(model, batches, baseline=baseline, as_json=as_json)
