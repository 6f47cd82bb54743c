"""Building, loading and choosing a backend: once, atomically, with errors that say what to do."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernels import native
from kernels.native import BackendError, CompilerError


@pytest.fixture(autouse=True)
def fresh_choice() -> Iterator[None]:
    """Each test decides anew, and leaves no decision behind."""
    native.default_backend.cache_clear()
    yield
    native.default_backend.cache_clear()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "headstart" / "kernels"


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a C compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


def test_a_library_is_compiled_once(empty_cache: Path) -> None:
    """The second build finds the first one's file, and no half-made file is left beside it."""
    path, compiled = native.build("rope")
    assert compiled
    assert path.parent == empty_cache
    assert native.build("rope") == (path, False)
    assert [entry.name for entry in empty_cache.iterdir()] == [path.name]


def test_a_changed_source_is_another_library(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's name follows sources and flags, so that no stale library is loaded."""
    compiler = native.find_compiler()
    plain = native.library_path("rope", compiler)
    assert native.library_path("rope", compiler, scalar=True) != plain
    folder = tmp_path / "changed" / "rope"
    folder.mkdir(parents=True)
    (folder / "kernel.c").write_text((native.ROOT / "rope" / "kernel.c").read_text() + "\n")
    monkeypatch.setattr(native, "ROOT", tmp_path / "changed")
    assert native.library_path("rope", compiler) != plain


def test_no_compiler_falls_back_with_one_warning(
    empty_cache: Path, no_compiler: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a compiler everything still runs, and one warning says what to install."""
    with caplog.at_level(logging.WARNING, logger="kernels"):
        assert native.default_backend() == "reference"
        assert native.default_backend() == "reference"
    assert len(caplog.records) == 1
    assert "install gcc or clang" in caplog.text


def test_native_on_demand_without_a_compiler_is_an_error(
    empty_cache: Path, no_compiler: None
) -> None:
    """Who asks for native gets native or an error, never something slow in silence."""
    with pytest.raises(CompilerError, match="install gcc or clang"):
        native.build("rope")


def test_a_failing_compiler_is_quoted(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's own words are in the error, and nothing is left in the cache."""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'no space left' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(CompilerError, match="no space left"):
        native.build("rope")
    assert not list(empty_cache.iterdir())


def test_a_compiler_without_openmp_builds_single_threaded(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where -fopenmp is refused, as by Apple's clang, the kernel is built without it."""
    fussy = tmp_path / "cc"
    real = native.find_compiler()
    fussy.write_text(f'#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec {real} "$@"\n')
    fussy.chmod(0o755)
    monkeypatch.setenv("CC", str(fussy))
    path, compiled = native.build("rope")
    assert compiled
    assert path.stat().st_size > 0


@pytest.mark.parametrize("value", ["Native", "cuda"])
def test_a_mistyped_setting_is_an_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADSTART_KERNELS with an unknown value is refused and not taken for the default."""
    monkeypatch.setenv("HEADSTART_KERNELS", value)
    with pytest.raises(BackendError, match="HEADSTART_KERNELS"):
        native.default_backend()


def test_the_setting_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADSTART_KERNELS=reference is the reference though a compiler is there."""
    monkeypatch.setenv("HEADSTART_KERNELS", "reference")
    assert native.library("rope", lambda _: None, None) is None


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc/self/maps (Linux)")
def test_kernels_share_the_thread_pool_of_torch() -> None:
    """With every kernel loaded there is exactly one OpenMP runtime in the process."""
    script = (
        "import torch, kernels.native as n\n"
        "from kernels.silu_mul import silu_mul\n"
        "from kernels.qlinear import pack\n"
        "import numpy as np\n"
        "silu_mul(torch.ones(1, 8), torch.ones(1, 8), backend='native')\n"
        "pack('F32', np.zeros(64, np.uint8), 1, 16, backend='native')\n"
        "torch.ones(300, 300) @ torch.ones(300, 300)\n"
        "maps = open('/proc/self/maps').read().split()\n"
        "print(*{w for w in maps if 'libgomp' in w or 'libomp' in w or 'libiomp' in w}, sep='|')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=native.ROOT.parent,
        env={**os.environ, "HEADSTART_KERNELS": "native"},
    )
    found = done.stdout.strip().split("|")
    assert len(found) == 1
    assert Path(found[0]).is_relative_to(Path(torch.__file__).parent.parent)


def test_importing_kernels_compiles_nothing() -> None:
    """A wrong HEADSTART_KERNELS does no harm until a kernel is used: nothing is done on import."""
    script = "import kernels.qlinear, kernels.paged_attention, kernels.rms_norm, kernels.native"
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=native.ROOT.parent,
        env={**os.environ, "HEADSTART_KERNELS": "nonsense"},
    )
