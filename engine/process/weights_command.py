"""`headstart models list | fetch NAME | info NAME | path NAME | clear-packed`.

`python -m headstart.engine.process.weights_command` is the same, without `headstart` on the PATH.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Column, Table

from headstart.engine.errors import EngineError
from headstart.engine.weights.errors import UnknownName, WeightsError
from headstart.engine.weights.fetch import Fetcher, ensure, lies_in_folder
from headstart.engine.weights.manifest import (
    ADAPTERS,
    HubSource,
    LocalSource,
    PypiSource,
    Source,
    Weight,
)
from headstart.engine.weights.packed_store import PackedStore
from headstart.engine.weights.store import Store, locate

app = typer.Typer(
    help="The weights headstart runs on: list, fetch, inspect.",
    no_args_is_help=True,
    add_completion=False,
)

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_MIB = 1 << 20


class _Bars:
    """Shows a fetch on the terminal: one bar per weight, with notes as lines above."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def advance(self, weight: str, done_bytes: int, total_bytes: int) -> None:
        if weight not in self._tasks:
            self._tasks[weight] = self._bars.add_task(weight, total=total_bytes)
        self._bars.update(self._tasks[weight], completed=done_bytes)


@app.command("list")
def list_weights() -> None:
    """List all models and weights: size, licence, whether they are fetched, and what is packed."""
    fetcher = Fetcher()
    store = Store(fetcher.root)
    # A name that is cut off in a narrow terminal could not be typed.
    table = Table(Column("name", no_wrap=True), "size", "licence", "fetched")
    for model in fetcher.manifest.models:
        weights = fetcher.manifest.members(model.name)
        here = sum(store.is_verified(weight) for weight in weights)
        size = _mib(sum(weight.size_bytes for weight in weights))
        table.add_row(f"[bold]{model.name}[/]", size, "by part", f"{here} of {len(weights)}")
    table.add_section()
    for weight in fetcher.manifest.weights:
        fetched = "yes" if store.is_verified(weight) else "no"
        table.add_row(weight.name, _mib(weight.size_bytes), weight.licence, fetched)
    Console().print(table)
    packed = PackedStore(fetcher.root, 0)
    for entry in packed.entries():
        typer.echo(f"packed for fast starts: {entry.path.name}, {_mib(entry.size_bytes)}")


@app.command("clear-packed")
def clear_packed() -> None:
    """Remove the packed weights that make starts fast; the next start packs them again."""
    try:
        removed_bytes = PackedStore(Fetcher().root, 0).clear()
    except OSError as error:
        typer.echo(f"headstart: cannot remove packed weights: {error}", err=True)
        raise typer.Exit(_EXIT_FAILED) from error
    typer.echo(f"removed {_mib(removed_bytes)}")


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="A model (small, medium, tiny) or one weight of `headstart models list`."
        ),
    ],
) -> None:
    """Download a model or a weight, verify it, and print its path."""
    fetcher = Fetcher()
    store = Store(fetcher.root)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        weights = fetcher.manifest.members(name)
        with Progress(*columns, TransferSpeedColumn(), console=console) as bars:
            progress = _Bars(bars)
            for weight in weights:
                already = store.is_verified(weight)
                path = fetcher.ensure(weight.name, progress)
                what = "already fetched" if already else "fetched and verified"
                progress.note(f"{weight.name}: {what}: {path}")
    except UnknownName as error:
        _fail(error, _EXIT_USAGE)
    except WeightsError as error:
        _fail(error, _EXIT_FAILED)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="A model, one weight, or a model directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show files, hashes, licences and sources of a model or weight, or a model directory's
    family, sizes and faults."""
    if os.sep in name or Path(name, "config.json").is_file():
        _info_directory(Path(name), as_json)
        return
    fetcher = Fetcher()
    store = Store(fetcher.root)
    try:
        facts = [_facts(weight, store) for weight in fetcher.manifest.members(name)]
    except UnknownName as error:
        _fail(error, _EXIT_USAGE)
    adapters = {model.name: model.adapter for model in fetcher.manifest.models}
    adapter = adapters.get(name)
    if as_json:
        typer.echo(json.dumps({"name": name, "weights": facts, "adapter": adapter}))
        return
    for fact in facts:
        typer.echo(f"{fact['name']}: {fact['about']}")
        typer.echo(f"  licence  {fact['licence']} (from {fact['licence_from']})")
        typer.echo(f"  path     {fact['path']}{'' if fact['fetched'] else ' (not fetched)'}")
        for file in fact["files"]:
            typer.echo(f"  file     {file['name']}, {file['size_bytes']} bytes")
            typer.echo(f"           sha256 {file['sha256']}")
        for source in fact["sources"]:
            typer.echo(f"  source   {source}")
    if adapter is not None:
        typer.echo(f"{adapter}: a LoRA of ours for the language model (recipes/conversation_lora)")
        typer.echo("  licence  Apache-2.0 (from this repository)")
        typer.echo(f"  path     {ADAPTERS / adapter}")


def _info_directory(folder: Path, as_json: bool) -> None:
    """Describe a model directory. Exits with 1 if it could not be loaded as it is."""
    from headstart.engine.models.info import describe  # imports torch, which is slow

    try:
        facts = describe(folder.expanduser())
    except EngineError as error:
        typer.echo(f"headstart: {error}", err=True)
        raise typer.Exit(_EXIT_FAILED) from error
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for key, value in facts.items():
            for line in value if isinstance(value, list) else [value]:
                typer.echo(f"{key.replace('_', ' '):>18}  {'no' if line is None else line}")
    if facts["wrong_count"]:
        raise typer.Exit(_EXIT_FAILED)


@app.command()
def path(
    name: Annotated[str, typer.Argument(help="One weight.")],
    fetch_first: Annotated[
        bool, typer.Option("--fetch", help="Fetch it if it is missing.")
    ] = False,
) -> None:
    """Print the path of a verified weight and nothing else, for scripts."""
    try:
        typer.echo(str(ensure(name) if fetch_first else locate(name)))
    except UnknownName as error:
        _fail(error, _EXIT_USAGE)
    except WeightsError as error:
        _fail(error, _EXIT_FAILED)


def _facts(weight: Weight, store: Store) -> dict[str, Any]:
    return {
        "name": weight.name,
        "about": weight.about,
        "size_bytes": weight.size_bytes,
        "licence": weight.licence,
        "licence_from": weight.licence_from,
        "fetched": store.is_verified(weight),
        "in_folder": lies_in_folder(weight),
        "path": str(store.path(weight)),
        "files": msgspec.to_builtins(weight.file),
        "sources": [line for source in weight.source for line in _source_lines(source)],
    }


def _source_lines(source: Source) -> list[str]:
    if isinstance(source, LocalSource):
        return ["local folder in HEADSTART_WEIGHTS_FOLDER"]
    if isinstance(source, HubSource):
        return [f"hub {source.repo} at {source.revision}"]
    assert isinstance(source, PypiSource)
    return [f"PyPI {part.package}=={part.version} {part.member}" for part in source.part]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB"


def _fail(error: WeightsError, status: int) -> NoReturn:
    typer.echo(f"headstart: {error}", err=True)
    raise typer.Exit(status)


if __name__ == "__main__":
    app()
