"""The shape of the project: which folder may import which, and what every folder has to say.

A folder's docstring is its rule: the line "May import: …" lists what of ours its files import, and
the paragraph behind it begins with "Never: ". Folders form layers: one that imports nothing of
ours is in the first, every other one is above all that it imports.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("headstart", "gateway", "engine", "kernels", "benchmarks", "recipes")
"""Folders at the top. All but the first are imported as `headstart.gateway` and so on, by way of
links in `headstart/`."""
LAYERED = ("headstart", "gateway", "engine")
"""Whose folders form layers and have a docstring with their rule."""
IN_LAYERS = (*LAYERED, "benchmarks")
"""Whose folders form layers."""

LAYERS_MAX = 7
MAX_FLAT_FILES = 8
MAX_FILE_LINES = 600  # most have 100 to 300: a file holds one idea

# What a package may not import, by the first part of the module's name.
FORBIDDEN = {
    "headstart": {"torch", "torchaudio", "kernels", "triton"},
    "gateway": {"torch", "torchaudio", "kernels", "triton", "headstart"},
    "engine": {"asyncio", "aiortc", "websockets", "starlette", "uvicorn", "gateway", "headstart"},
    "kernels": {"engine", "gateway", "headstart"},
}

# Modules of a package that a folder alone may import.
ALLOWED = {"engine/backends/llm_server": {"asyncio"}}  # an HTTP client, in a thread of its own

# Cores that take events and time as arguments: they cannot wait, and read no clock.
SANS_IO = (
    "gateway/session",
    "gateway/protocol",
    "engine/chat",
    "engine/kvcache",
    "engine/placement",
    "engine/scheduling",
    "engine/session",
)
NO_CORES_BUSINESS = {"asyncio", "time", "threading", "socket", "selectors", "subprocess"}

# What the gateway may import of the engine.
KNOWN_OF_ENGINE = {
    "headstart.engine.api",
    "headstart.engine.api.deferred_import",
    "headstart.engine.api.host",
    "headstart.engine.api.keys",
    "headstart.engine.placement",
}

HISTORY = {"docs/log.md", "CHANGELOG.md"}  # pages that may name what is gone


def sources(package: str) -> list[Path]:
    return sorted(p for p in (ROOT / package).rglob("*.py") if "__pycache__" not in p.parts)


def module_of(path: Path) -> str:
    """A module's name: all folders at the top but `headstart` are linked into that one."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] in ("headstart", "tests") else ("headstart", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_of(name: str) -> str:
    """The top folder that a module lies in; of others' modules, the first part of the name."""
    parts = name.split(".")
    return parts[1] if parts[0] == "headstart" and parts[1:2] and parts[1] in PACKAGES else parts[0]


MODULES = {module_of(path): path for package in PACKAGES for path in sources(package)}
FOLDERS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Names of all modules a file imports, wherever in it: those of ours in full. Read once: most
    tests here ask it of every file."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield inside if inside in MODULES else node.module


def is_flat(module: str) -> bool:
    """Whether a module lies at the top of its package."""
    return module.count(".") == (1 if top_of(module) == "headstart" else 2)


def root_of(package: str) -> str:
    return package if package == "headstart" else f"headstart.{package}"


def folder_of(module: str) -> str:
    """The folder that a module belongs to; one at the top of its package stands for itself."""
    if module in FOLDERS or is_flat(module):
        return module
    return module.rpartition(".")[0]


def layered(package: str) -> dict[str, set[str]]:
    """What each folder of a package imports of the others; `__main__` is nobody's to import."""
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if top_of(name) != package or name.endswith(".__main__") or name == root_of(package):
            continue
        mine = graph.setdefault(folder_of(name), set())
        theirs = {folder_of(other) for other in imports(path) if other in MODULES}
        mine |= {other for other in theirs if top_of(other) == package} - {folder_of(name)}
    return graph


def left_over(graph: Mapping[str, set[str]]) -> list[str]:
    """What imports itself by way of others: gone are all that import nobody, or that nobody
    imports, again and again."""
    left = {name: set(below) for name, below in graph.items()}
    while True:
        imported = {below for name in left for below in left[name]}
        gone = [name for name, below in left.items() if not below & left.keys()]
        gone += [name for name in left if name not in imported]
        if not gone:
            return sorted(left)
        for name in set(gone):
            del left[name]


def layer(graph: Mapping[str, set[str]], name: str) -> int:
    return 1 + max((layer(graph, below) for below in graph.get(name, ())), default=0)


# --- walls ---------------------------------------------------------------------------------------


def allowed_in(path: Path) -> set[str]:
    return ALLOWED.get(str(path.parent.relative_to(ROOT)), set())


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_no_import_crosses_a_wall(package: str) -> None:
    """gateway has no torch, engine no sockets of people's, kernels nothing of ours."""
    bad = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imports(path)
        if top_of(name) in FORBIDDEN[package] - allowed_in(path)
    ]
    assert bad == []


@pytest.mark.parametrize("package", ["gateway", "headstart"])
def test_the_engine_is_known_by_its_messages_only(package: str) -> None:
    """Of engine, they import `headstart.engine.api`, the keys of the connection between the two,
    imports that both sides defer, and the placement that both sides use."""
    bad = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imports(path)
        if top_of(name) == "engine" and name not in KNOWN_OF_ENGINE
    ]
    assert bad == []


@pytest.mark.parametrize("folder", SANS_IO)
def test_the_cores_do_no_io_and_read_no_clock(folder: str) -> None:
    """Events and time come in as arguments: the same code runs live and in virtual time."""
    bad = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        for name in imports(path)
        if name.split(".")[0] in NO_CORES_BUSINESS
    ]
    assert bad == []


def test_the_engines_messages_load_without_torch() -> None:
    """Importing what the gateway needs of the engine leaves torch out: the gateway stays small."""
    names = ", ".join(sorted(KNOWN_OF_ENGINE))
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_our_kernels_and_transformers_live_together() -> None:
    """transformers probes for a library called `kernels`: it must not find ours."""
    code = "import headstart.kernels.qlinear, transformers; transformers.LlamaConfig()"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# --- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", IN_LAYERS)
def test_modules_do_not_import_each_other_in_circles(package: str) -> None:
    """Not even inside functions or for types."""
    graph = {
        name: {other for other in imports(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
        if top_of(name) == package
    }
    assert left_over(graph) == []


@pytest.mark.parametrize("package", IN_LAYERS)
def test_folders_form_few_layers(package: str) -> None:
    """No folder imports one that imports it, and there are no more than seven layers."""
    graph = layered(package)
    assert left_over(graph) == []
    high = {name: layer(graph, name) for name in graph}
    assert {name: at for name, at in high.items() if at > LAYERS_MAX} == {}


@pytest.mark.parametrize("package", ["gateway", "engine", "benchmarks"])
def test_few_files_lie_at_the_top(package: str) -> None:
    """Whoever opens a package sees its folders."""
    flat = [p.name for p in (ROOT / package).iterdir() if p.is_file()]
    assert len(flat) <= MAX_FLAT_FILES, sorted(flat)


def test_entry_points_are_imported_by_nobody() -> None:
    """`__main__` does not count as a layer."""
    bad = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in MODULES.values()
        for name in imports(path)
        if name.endswith(".__main__")
    ]
    assert bad == []


# --- what folders say ----------------------------------------------------------------------------


def ruled() -> list[str]:
    return sorted(name for name in FOLDERS if top_of(name) in LAYERED)


def doc_of(folder: str) -> str:
    return ast.get_docstring(ast.parse(MODULES[folder].read_text())) or ""


def allowed_by(doc: str) -> list[str]:
    """The names of the line "May import: `a`, `b`."""
    found = re.search(r"^May import: (.*?)\.$", doc, re.MULTILINE | re.DOTALL)
    return [] if found is None else re.findall(r"`([\w.]+)`", found[1])


def in_full(folder: str, name: str) -> str:
    """A name of that line: of the folder's own package, or with its package before it."""
    own = f"{root_of(top_of(folder))}.{name}"
    return own if own in MODULES else f"headstart.{name}"


@pytest.mark.parametrize("folder", ruled())
def test_a_folder_says_what_it_does_and_never_does(folder: str) -> None:
    """In its docstring: the idea, what it may import, and what it never does."""
    doc = doc_of(folder)
    assert re.search(r"^May import: ", doc, re.MULTILINE), f"{folder}: which folders may it import?"
    assert re.search(r"^Never: \S", doc, re.MULTILINE), f"{folder}: what does it never do?"
    assert not doc.startswith(("May import", "Never")), f"{folder}: what does it do?"
    unknown = [n for n in allowed_by(doc) if in_full(folder, n) not in MODULES]
    assert unknown == [], f"{folder}: there is no such folder or module"


def files_of(folder: str) -> Iterable[Path]:
    """A folder's own files; for a whole package those at its top."""
    return (path for name, path in MODULES.items() if name == folder or _inside(name, folder))


def _inside(name: str, folder: str) -> bool:
    return name.rpartition(".")[0] == folder and name not in FOLDERS


@pytest.mark.parametrize("folder", ruled())
def test_a_folder_imports_what_it_says(folder: str) -> None:
    """Nothing of ours beside that line and itself."""
    allowed = {in_full(folder, name) for name in allowed_by(doc_of(folder))}
    bad = []
    for path in files_of(folder):
        for name in imports(path):
            if name not in MODULES or top_of(name) not in (*LAYERED, "kernels"):
                continue
            of = "headstart.kernels" if top_of(name) == "kernels" else folder_of(name)
            mine = of == folder or (_inside(of, folder) and folder == root_of(top_of(folder)))
            if not mine and of not in allowed:
                bad.append(f"{path.relative_to(ROOT)} imports {name}")
    assert bad == [], f"put it into the docstring of {folder}, if it belongs there"


def test_modules_say_what_they_are() -> None:
    """Each begins with a docstring."""
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


# --- tests, files and pages ----------------------------------------------------------------------


def acts(path: Path) -> bool:
    """Whether a file has functions; those of protocols only say what others do."""

    def functions(tree: ast.AST) -> bool:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return True
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            is_protocol = any(
                isinstance(base, ast.Name) and base.id == "Protocol" for base in bases
            )
            if not is_protocol and functions(node):
                return True
        return False

    return functions(ast.parse(path.read_text()))


UNTESTED = {
    "headstart.clips": "how the bundled clips were made; needs a voice that is no dependency",
}


@pytest.mark.parametrize(
    "folder", sorted(n for n in FOLDERS if top_of(n) not in ("benchmarks", "recipes"))
)
def test_every_package_has_tests_of_its_behaviour(folder: str) -> None:
    """The folder tests/<package> holds tests that import it. (Benchmarks are run by `make bench`;
    what they share is tested.)"""
    if folder in UNTESTED or not any(acts(path) for path in files_of(folder)):
        return
    tests = ROOT / "tests" / MODULES[folder].parent.relative_to(ROOT)
    found = [p for p in tests.glob("test_*.py") if any(_of(folder, n) for n in imports(p))]
    assert found, f"{tests.relative_to(ROOT)}/ has no test of {folder}"


def _of(folder: str, name: str) -> bool:
    return name == folder or _inside(name, folder)


def test_files_hold_one_idea() -> None:
    """One of more than 600 lines holds several."""
    checked = [p for package in (*PACKAGES, "tests") for p in sources(package)]
    page = [p for p in (ROOT / "web-demo").rglob("*.js") if "vendor" not in p.parts]
    checked += sorted(page) + sorted((ROOT / "kernels").rglob("*.c"))
    counted = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in checked}
    assert {name: lines for name, lines in counted.items() if lines > MAX_FILE_LINES} == {}


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


def test_pages_name_files_that_exist() -> None:
    """A page that names a source file of ours names one that is there."""
    named = re.compile(
        r"(?<![\w/.-])(?:headstart|gateway|engine|kernels|tests|benchmarks|recipes|web-demo)"
        r"/[\w./-]*\.(?:py|c|h|js|toml|md|wav|mp4|ogg)\b"
    )
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("[!.]*/**/README.md")]
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        if str(page.relative_to(ROOT)) not in HISTORY
        for name in named.findall(page.read_text())
        if not (ROOT / name).exists()
    ]
    assert gone == []
