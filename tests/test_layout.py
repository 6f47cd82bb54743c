"""The shape of the project: import walls, tests beside their sources, sizes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "engine", "kernels", "benchmarks", "recipes")

MAX_FILE_LINES = 400
MAX_KERNEL_LINES = 600
MAX_CENTRAL_LINES = 600
CENTRAL = ("gateway/pump.py", "gateway/session.py", "engine/session.py")
MAX_FUNCTION_LINES = 60

# What a package may not import, by the first part of the module's name.
FORBIDDEN = {
    "gateway": {"torch", "torchaudio", "kernels", "triton"},
    "engine": {"asyncio", "aiortc", "websockets", "starlette", "uvicorn", "gateway"},
    "kernels": {"engine", "gateway"},
}

# Sources without a test file of their own, each with its reason.
UNTESTED = {
    "engine/api/commands.py": "messages; tests/engine/api/test_api.py sends each one over the wire",
    "engine/api/events.py": "messages, as above",
    "engine/api/values.py": "messages, as above",
    "gateway/clips/make_clips.py": "needs a voice that is no dependency; tests use what it made",
    "kernels/bench.py": "a measurement",
}
MEASUREMENTS = "benchmarks"  # run by `make bench`; only what they share is tested


def sources(package: str) -> list[Path]:
    return sorted(p for p in (ROOT / package).rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path) -> Iterator[str]:
    """Names of all modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_no_import_crosses_a_wall(package: str) -> None:
    """gateway has no torch, engine no sockets of people's, kernels nothing of ours."""
    bad = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imports(path)
        if name.split(".")[0] in FORBIDDEN[package]
    ]
    assert bad == []


def test_the_gateway_knows_the_engine_by_its_messages_only() -> None:
    """Of engine, gateway imports `engine.api` and nothing else."""
    bad = []
    for path in sources("gateway"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "engine":
                names = {alias.name for alias in node.names}
                if names != {"api"}:
                    bad.append(f"{path.relative_to(ROOT)}: from engine import {names}")
        bad += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in imports(path)
            if name.startswith("engine.") and name != "engine.api"
        ]
    assert bad == []


def _runtime_imports(path: Path, modules: set[str]) -> set[str]:
    """Those of our modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (within & modules) or {node.module}
    return found & modules


@pytest.mark.parametrize("package", ["engine", "gateway"])
def test_modules_do_not_import_each_other_in_circles(package: str) -> None:
    """Not even inside functions or for types: what is left over are circles."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources(package)
    }
    left = {name: _runtime_imports(path, set(names)) - {name} for name, path in names.items()}
    while bottom := [name for name, below in left.items() if not below & left.keys()]:
        for name in bottom:
            del left[name]
    while top := [name for name in left if not any(name in left[other] for other in left)]:
        for name in top:
            del left[name]
    assert sorted(left) == []


def test_the_engines_messages_load_without_torch() -> None:
    """`import engine.api` leaves torch out of the process: the gateway stays small."""
    code = "import sys, engine.api; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_our_kernels_and_transformers_live_together() -> None:
    """A library of the name `kernels` exists that transformers probes for; ours hides it."""
    code = "import kernels.qlinear, transformers; transformers.LlamaConfig()"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def needs_a_twin(path: Path) -> bool:
    """Whether a source has anything of its own to test."""
    if path.name in ("__init__.py", "__main__.py"):
        return False
    return any(_functions(ast.parse(path.read_text())))


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Functions that do something: those of protocols only say what others do."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases):
            yield from _functions(node)


def has_a_twin(path: Path) -> bool:
    """tests/ mirrors the tree: a/b/c.py is tested by tests/a/b/test_c.py, or, where a folder is
    one thing in several files, by a test file that imports it from that folder's tests."""
    relative = path.relative_to(ROOT)
    folder = ROOT / "tests" / relative.parent
    if (folder / f"test_{path.stem}.py").exists():
        return True
    module = ".".join(relative.with_suffix("").parts)
    names = {module}
    if "kernels" in relative.parts:  # an operation is one thing: reference and kernel side by side
        names.add(".".join(relative.parent.parts))
    tests = list(folder.glob("test_*.py")) + list(folder.parent.glob("test_*.py"))
    return any(names & set(imports(test)) for test in tests)


@pytest.mark.parametrize("package", [p for p in PACKAGES if p != MEASUREMENTS])
def test_every_source_has_its_test(package: str) -> None:
    """The tests mirror the sources."""
    missing = [
        str(path.relative_to(ROOT))
        for path in sources(package)
        if needs_a_twin(path) and not has_a_twin(path)
        if str(path.relative_to(ROOT)) not in UNTESTED
    ]
    assert missing == []


def test_files_are_small() -> None:
    """At most 400 lines; 600 for kernels, and for the three files where everything meets."""
    checked = [p for package in (*PACKAGES, "tests") for p in sources(package)]
    checked += sorted((ROOT / "web-demo").glob("*.js")) + sorted((ROOT / "kernels").rglob("*.c"))
    long = []
    for path in checked:
        limit = MAX_KERNEL_LINES if "kernels" in path.parts else MAX_FILE_LINES
        if str(path.relative_to(ROOT)) in CENTRAL:
            limit = MAX_CENTRAL_LINES
        lines = len(path.read_text().splitlines())
        if lines > limit:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert long == []


def test_functions_are_small() -> None:
    """At most 60 lines."""
    long = []
    for path in (p for package in (*PACKAGES, "tests") for p in sources(package)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert long == []


def test_every_test_says_what_it_claims() -> None:
    """Each test has a docstring, and no test is skipped in silence."""
    silent = []
    for path in sources("tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_") and ast.get_docstring(node) is None:
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert silent == []
