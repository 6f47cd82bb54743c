"""gateway.runtime.later_import: packages that nobody asks for do not run, and run when asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = (
    "from headstart.engine.api.deferred_import import not_run\n"
    "from headstart.gateway.runtime.later_import import import_alone"
)
AROUND = "('outer', 'outer.inner')"


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """outer.inner.wanted, and what the packages around it do."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("print('outer runs')\nfrom . import inner\n")
    (inner / "__init__.py").write_text("print('inner runs')\nfrom .wanted import VALUE\nMORE = 2\n")
    (inner / "wanted.py").write_text("VALUE = 1\n")
    (inner / "asking.py").write_text("from outer.inner import MORE\nVALUE = MORE\n")
    (inner / "broken.py").write_text("from outer.inner import NONE\n")
    (inner / "fragile.py").write_text(
        "import sys\nif 'outer.inner.wanted' not in sys.modules: raise ImportError('too soon')\n"
    )
    (inner / "touchy.py").write_text("import sys\nsys.modules.get('outer.inner.wanted').VALUE\n")
    return tmp_path


def run(folder: Path, *lines: str) -> list[str]:
    """The lines that a fresh process prints."""
    code = "\n".join((f"import sys; sys.path.insert(0, {str(folder)!r})", IMPORT, *lines))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_what_is_around_runs_when_it_is_asked_for(outer: Path) -> None:
    """Not before: not by importing from it, nor by those who look through all modules."""
    assert run(
        outer,
        f"import_alone('outer.inner.wanted', {AROUND})",
        "import inspect; inspect.getmodule(inspect.currentframe())",
        "from outer.inner.wanted import VALUE",
        f"print(VALUE, not_run({AROUND}))",
        "import outer",
        "print(outer.inner.MORE, outer.inner.wanted.VALUE)",
        "print(hasattr(outer, 'none'), hasattr(outer.inner, 'none'))",
        f"print(not_run({AROUND}))",
    ) == ["1 ['outer', 'outer.inner']", "inner runs", "2 1", "outer runs", "False False", "[]"]


@pytest.mark.parametrize(
    ("asking", "told"),
    [
        ("import outer.inner; print(outer.inner.__version__)", ["inner runs", "3"]),
        ("from outer.inner import *; print(MORE)", ["inner runs", "2"]),
        ("print(hasattr(sys.modules['outer.inner'], '__none__'))", ["False"]),
    ],
)
def test_its_version_and_all_of_its_names_are_its_own(
    outer: Path, asking: str, told: list[str]
) -> None:
    """Other names with underscores are none that a package says of itself."""
    init = outer / "outer" / "inner" / "__init__.py"
    init.write_text(init.read_text() + "__version__ = 3\n")
    assert run(outer, f"import_alone('outer.inner.wanted', {AROUND})", asking) == told


def test_a_module_that_needs_the_package_gets_it(outer: Path) -> None:
    """The package runs in the middle of the import, as if it had been imported then."""
    assert run(
        outer,
        f"import_alone('outer.inner.asking', {AROUND})",
        "from outer.inner.asking import VALUE",
        f"print(VALUE, not_run({AROUND}))",
    ) == ["inner runs", "2 ['outer']"]


@pytest.mark.parametrize("name", ["fragile", "touchy"])
def test_a_module_that_cannot_do_without_is_imported_as_usual(outer: Path, name: str) -> None:
    """All of it anew, so that nothing is left of the first try, whatever went wrong in it."""
    assert run(
        outer,
        f"import_alone('outer.inner.{name}', {AROUND})",
        f"print(not_run({AROUND}))",
    ) == ["outer runs", "inner runs", "[]"]


def test_what_is_missing_is_still_said(outer: Path) -> None:
    """And no finder stays behind."""
    assert run(
        outer,
        "for name in ('outer.inner.broken', 'outer.nothing', 'nowhere'):",
        f"    try: import_alone(name, {AROUND})",
        "    except ImportError as error: print(type(error).__name__)",
        "print(any(type(f).__name__ == '_Finder' for f in sys.meta_path))",
    )[-2:] == ["ModuleNotFoundError", "False"]


def test_what_is_there_already_is_left_alone(outer: Path) -> None:
    """A program that uses the packages has run them."""
    assert run(
        outer,
        "import outer",
        f"import_alone('outer.inner.wanted', {AROUND})",
        f"print(not_run({AROUND}))",
    ) == ["outer runs", "inner runs", "[]"]


def test_the_gateway_needs_nothing_around_the_protocols_types() -> None:
    """Everything that it imports, and the schemas made, ask for none of it; clients still work."""
    lines = (
        "from headstart.gateway.server import main",
        "main.import_rest()",
        "from headstart.gateway.protocol.parse import parse_client_event, prepare",
        "prepare()",
        "print(not_run(main.NOT_OURS) == list(main.NOT_OURS))",
        "import openai, openai.types.responses",
        "print(openai.OpenAI.__name__, openai.types.responses.Response.__name__)",
        "print(openai.types.Completion.__name__, not_run(main.NOT_OURS))",
    )
    told = ["True", "OpenAI Response", "Completion []"]
    assert run(Path.cwd(), *lines) == told
