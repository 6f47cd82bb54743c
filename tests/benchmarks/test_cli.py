"""`headstart bench`: what its commands are called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer

from headstart.benchmarks import cli


def test_compile_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no C++ compiler."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="install g"):
        cli.compiled(as_json=True)


def test_kinds_beside_by_modality_are_refused() -> None:
    """It compares kinds of its own; those asked for would be ignored."""
    with pytest.raises(typer.BadParameter, match="leave out --kinds fp32,int8"):
        cli.kv("small", 1, "fp32,int8", by_modality=True, as_json=True)


def test_all_gives_each_benchmark_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default is typer's description of the option, which is no value when Python calls it."""
    given: dict[str, dict[str, Any]] = {}

    def record(command: Callable[..., None]) -> Callable[..., None]:
        def called(*args: Any, **named: Any) -> None:
            signature = inspect.signature(command, eval_str=True)
            given[command.__name__] = dict(signature.bind(*args, **named).arguments)
            assert list(given[command.__name__]) == list(signature.parameters)
            for name, value in given[command.__name__].items():
                kind = signature.parameters[name].annotation
                assert type(value) is kind or kind not in (bool, str, int, float), name

        return called

    for registered in cli.app.registered_commands:
        command = registered.callback
        assert command is not None
        if command is not cli.run_all:
            monkeypatch.setattr(cli, command.__name__, record(command))
    cli.run_all("small", 2, as_json=True)
    assert {"decode", "frames", "voice"} <= set(given)
    assert all(arguments["as_json"] is True for arguments in given.values())
