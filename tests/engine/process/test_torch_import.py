"""headstart.engine.process.torch_import: what is left out is there as soon as it is asked for."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from headstart.engine.process.torch_import import LATER, RELEASE, import_torch

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
IMPORTS = (
    "from headstart.engine.api.deferred_import import not_run",
    "from headstart.engine.process import torch_import",
)


def run(*lines: str) -> str:
    """What a fresh process prints."""
    code = "\n".join((*IMPORTS, *lines))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_release_is_the_one_we_install() -> None:
    """Another one of them would be imported as usual, which is slower: look at it anew then."""
    pinned = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert f"torch=={RELEASE}" in pinned


def test_the_entry_point_imports_no_torch() -> None:
    """So that it can be imported as said here, and the gateway be told before."""
    assert run("import headstart.engine.__main__, sys", "print('torch' in sys.modules)") == "False"


def test_what_is_read_while_libraries_load_is_without_torch() -> None:
    """Names, weights, header, tokenizer; and it imports no library of asyncio's size."""
    told = run(
        "import headstart.engine.__main__, headstart.engine.asr.named, headstart.engine.weights",
        "import headstart.engine.process.header, sys",
        "print([name for name in ('torch', 'asyncio') if name in sys.modules])",
    )
    assert told == "[]"


def test_libraries_are_loaded_beside() -> None:
    """The import finds them there, and Python has run meanwhile."""
    told = run(
        "torch_import.load_libraries()",
        "loading = torch_import._loading",
        "torch_import.import_torch()",
        "import torch",
        "print(loading is None or not loading.is_alive(), torch.ones(2).sum().item())",
    )
    assert told == "True 2.0"


def test_a_torch_without_those_libraries_is_imported_as_usual(tmp_path: Path) -> None:
    """What cannot be loaded beforehand costs nothing but the time."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("here = True\n")
    told = run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "torch_import.load_libraries()",
        "torch_import._loading and torch_import._loading.join()",
        "torch_import.RELEASE = '0.0'",
        "print(torch_import.import_torch(), sys.modules['torch'].here)",
    )
    assert told == "False True"


def test_cuda_bindings_are_not_imported_but_can_be() -> None:
    """torch does without them, as if they were not installed."""
    told = run(
        "assert torch_import.import_torch()",
        "import importlib.util, sys",
        "print([name for name in sys.modules if name.startswith('cuda')])",
        "import torch",
        "print(torch.cuda._utils._HAS_CUDA_BINDINGS, torch.cuda.is_available() in (True, False))",
        "installed = importlib.util.find_spec('cuda') is not None",
        "print(installed == (importlib.util.find_spec('cuda.bindings') is not None))",
    )
    assert told.splitlines() == ["[]", "False True", "True"]


def test_a_packaged_model_needs_nothing_of_what_is_left_out() -> None:
    """All of the engine's modules are imported, and none has asked for one of those."""
    told = run(
        "assert torch_import.import_torch()",
        "import headstart.engine.process.assemble",
        "print(not_run(torch_import.LATER) == list(torch_import.LATER))",
    )
    assert told == "True"


def test_a_packaged_model_on_the_cpu_imports_nothing_for_gpus() -> None:
    """Nor anything of model directories: their modules cost a start two tenths of a second."""
    others = "('headstart.kernels.gpu', 'headstart.engine.models', 'headstart.engine.device.place')"
    told = run(
        "import headstart.engine.process.assemble, sys",
        f"print([name for name in sys.modules if name.startswith({others})])",
    )
    assert told == "[]"


def test_what_is_left_out_runs_when_asked() -> None:
    """Each has then all that it has after a usual import."""
    print_names = (
        "for name in torch_import.LATER:",
        "    print(name, sorted(n for n in vars(sys.modules[name]) if not n.startswith('__')))",
    )
    imported = ", ".join(LATER)
    usual = run(f"import sys, torch, {imported}", *print_names)
    told = run(
        "assert torch_import.import_torch()",
        "import sys",
        "for name in torch_import.LATER:",
        "    assert not hasattr(sys.modules[name], 'no_such_name')",
        "    assert name not in not_run(torch_import.LATER)",
        f"import {imported}",
        *print_names,
    )
    assert told == usual


def test_what_it_registers_works_afterwards() -> None:
    """Shapes without data by Python's rules, distributions, compiling: as if run at once."""
    told = run(
        "assert torch_import.import_torch()",
        "import torch",
        "torch._meta_registrations.activate_meta",
        "square = torch.empty(3, 3, device='meta')",
        "print(torch.linalg.eigh(square).eigenvalues.shape)",
        "print(torch.distributions.Normal(0.0, 1.0).mean)",
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)))",
    )
    assert told.splitlines() == ["torch.Size([3])", "tensor(0.)", "tensor([2., 2.])"]


def test_random_numbers_are_the_same() -> None:
    """Before and after the modules have run that generators usually wait for."""
    drawn = "print(torch.rand(3, generator=torch.Generator().manual_seed(7)).tolist())"
    usual = run("import torch", drawn)
    lines = ("assert torch_import.import_torch()", "import torch", drawn)
    told = run(*lines, "import torch._prims.rng_prims", drawn)
    assert told.splitlines() == [usual, usual]


def test_another_release_is_imported_as_usual() -> None:
    """Nothing is left out then, and nobody looks for it later."""
    told = run(
        "import sys",
        "torch_import.RELEASE = '0.0'",
        "print(torch_import.import_torch(), not_run(torch_import.LATER))",
        "print(any(type(f).__name__ == '_Finder' for f in sys.meta_path))",
    )
    assert told.splitlines() == ["False []", "False"]


def test_a_second_import_changes_nothing() -> None:
    """Here torch has been imported long ago."""
    import torch

    assert not import_torch()
    assert sys.modules["torch"] is torch
