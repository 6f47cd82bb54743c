"""headstart.engine.api.deferred_import: modules that run when something of them is asked for."""

from __future__ import annotations

import subprocess
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


CROSSED = """
import sys, threading
sys.path.insert(0, {folder!r})
from headstart.engine.api.deferred_import import deferring, not_run
sys.both = threading.Barrier(2, timeout=30)
with deferring(["later"]):
    import later
found = []
asking = [
    threading.Thread(target=lambda: found.append(later.VALUE), daemon=True),
    threading.Thread(target=lambda: found.append(__import__("other").VALUE), daemon=True),
]
for thread in asking:
    thread.start()
for thread in asking:
    thread.join({wait_s})
print([thread.is_alive() for thread in asking], sorted(found), later.OTHER, not_run(["later"]))
"""


def test_two_threads_that_import_each_others_modules_both_go_on(tmp_path: Path) -> None:
    """One runs a deferred module, which imports `other`; one imports `other`, which asks for
    something of the deferred module. Both are in the middle of it before either asks. One has to do
    with what has run so far, as with any two imports; the modules are written for that."""
    (tmp_path / "later.py").write_text(
        "import sys\nVALUE = 1\nsys.both.wait()\nimport other\nOTHER = other.__name__\n"
    )
    (tmp_path / "other.py").write_text(
        "import sys\nVALUE = 2\nsys.both.wait()\nimport later\nLATER = getattr(later, 'OTHER', 0)\n"
    )
    code = CROSSED.format(folder=str(tmp_path), wait_s=10)
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.stdout.split("\n")[0] == "[False, False] [1, 2] other []", found


WAITED = """
import sys, threading, time
sys.path.insert(0, {folder!r})
from headstart.engine.api.deferred_import import deferring
sys.began = threading.Event()
with deferring(["later"]):
    import later
found = []
first = threading.Thread(target=lambda: found.append(later.FIRST))
first.start()
sys.began.wait(30)
found.append(later.LAST)
first.join(30)
print(found)
"""


def test_another_thread_waits_until_the_module_has_run(tmp_path: Path) -> None:
    """It gets a name that the module sets last, although another thread began to run it."""
    (tmp_path / "later.py").write_text(
        "import sys, time\nFIRST = 1\nsys.began.set()\ntime.sleep(0.3)\nLAST = 2\n"
    )
    code = WAITED.format(folder=str(tmp_path))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.stdout in ("[1, 2]\n", "[2, 1]\n"), found
