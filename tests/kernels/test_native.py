"""Building, loading and choosing a backend: once, atomically, with errors that say what to do."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headstart.kernels import levels, native
from headstart.kernels.errors import BackendError, CompilerError, LevelError
from tests.kernels.compiled import LEVELS


@pytest.fixture(autouse=True)
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test decides anew, whatever the suite runs under, and leaves no decision behind."""
    monkeypatch.delenv("HEADSTART_KERNELS", raising=False)
    native.default_backend.cache_clear()
    yield
    native.default_backend.cache_clear()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for code that is compiled quickly rather than well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-O0"))
    return tmp_path / "headstart" / "kernels"


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a C compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


def test_a_library_is_compiled_once(empty_cache: Path) -> None:
    """The second build finds the first one's file, and no half-made file is left beside it."""
    path, compiled = native.build()
    assert compiled
    assert path.parent == empty_cache
    assert native.build() == (path, False)
    assert [entry.name for entry in empty_cache.iterdir()] == [path.name]


def test_a_changed_source_is_another_library(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's name follows sources and flags, so that no stale library is loaded."""
    compiler = native.find_compiler()
    plain = native.library_path(compiler)
    assert native.library_path(compiler, "scalar") != plain
    shutil.copytree(native.ROOT, tmp_path / "changed")
    with (tmp_path / "changed" / "rope" / "kernel.c").open("a") as source:
        source.write("\n")
    monkeypatch.setattr(native, "ROOT", tmp_path / "changed")
    assert native.library_path(compiler) != plain


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
        native.build()


def test_a_failing_compiler_is_quoted(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's own words are in the error, and nothing is left in the cache."""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'no space left' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(CompilerError, match="no space left"):
        native.build()
    assert not list(empty_cache.iterdir())


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache directory below a file is an error with its path, not a traceback from the system."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CompilerError, match=r"cannot write kernels to .*file/headstart/kernels"):
        native.build()


def test_a_library_that_cannot_be_loaded_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From a cache mounted without `exec` nothing can be loaded: everything still runs, with one
    warning, and who asks for native gets the system's words."""
    (tmp_path / "native.so").write_text("not to be loaded")
    monkeypatch.setattr(native, "build", lambda *_: (tmp_path / "native.so", False))
    with caplog.at_level(logging.WARNING, logger="kernels"):
        assert native.default_backend() == "reference"
    assert f"cannot load the kernels from {tmp_path}" in caplog.text
    with pytest.raises(CompilerError, match="cannot load the kernels"):
        native.library("nothing has this name", lambda _: None, "native")


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


def test_a_level_is_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level that the processor has is a library of its own, and says so itself."""
    libraries = {}
    for name in LEVELS:
        native.default_backend.cache_clear()
        monkeypatch.setenv("HEADSTART_KERNELS", name)
        loaded = native.library("its level", lambda _: None, None)
        assert loaded is not None
        loaded.hs_level.restype = ctypes.c_char_p
        assert loaded.hs_level().decode() == name == native.level()
        libraries[name] = loaded
    assert len({library._name for library in libraries.values()}) == len(LEVELS)


def test_native_is_the_highest_level() -> None:
    """What compiles for this processor is the first of the levels that it has."""
    loaded = native.library("its level", lambda _: None, "native")
    assert loaded is not None
    loaded.hs_level.restype = ctypes.c_char_p
    assert loaded.hs_level().decode() == LEVELS[0] == native.level()


def test_a_level_that_the_processor_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for it is told what there is; nothing is compiled that would end the process."""
    monkeypatch.setattr(levels, "here", lambda _: ("avx2", "scalar"))
    with pytest.raises(LevelError, match="this processor has avx2, scalar"):
        native.build("avx512")


def test_importing_kernels_compiles_nothing() -> None:
    """A wrong HEADSTART_KERNELS does no harm until a kernel is used: nothing is done on import."""
    script = "from headstart.kernels import native, paged_attention, qlinear, rms_norm"
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=native.ROOT.parent,
        env={**os.environ, "HEADSTART_KERNELS": "nonsense"},
    )


def test_kernels_have_threads_of_their_own_where_told() -> None:
    """`set_threads` puts torch's setting aside, and None brings it back."""
    torch_threads = native.threads()
    native.set_threads(torch_threads + 2)
    try:
        assert native.threads() == torch_threads + 2
    finally:
        native.set_threads(None)
    assert native.threads() == torch_threads
