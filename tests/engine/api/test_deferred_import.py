"""headstart.engine.api.deferred_import: modules that run when something of them is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headstart.engine.api.deferred_import import deferring, not_run


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported by this name, and fails when it runs for the first time."""
    name = "headstart_test_deferred"
    (tmp_path / f"{name}.py").write_text(
        "import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\n"
        "if sys.runs == 1: raise OSError('not yet')\nVALUE = 7\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "runs", 0, raising=False)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_module_runs_once_when_asked(later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before; one that fails raises its own error, and runs again when asked again."""
    with deferring([later]):
        module = __import__(later)
    monkeypatch.setitem(sys.modules, later, module)
    assert not_run([later, "json", "no.such.module"]) == [later]
    with pytest.raises(OSError, match="not yet"):
        _ = module.VALUE
    assert not_run([later]) == [later]
    assert (module.VALUE, module.VALUE, not_run([later])) == (7, 7, [])
    assert getattr(sys, "runs", 0) == 2


def test_a_module_outside_is_imported_as_usual(later: str) -> None:
    """Others within the block, and the same one behind it; no finder stays."""
    before = list(sys.meta_path)
    with deferring(["no.such.module"]), pytest.raises(OSError, match="not yet"):
        __import__(later)
    assert sys.meta_path == before
