"""`python -m headstart.kernels.build` says what it made, or what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.kernels import build, native


def test_says_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library's path and the compiler are printed; a second run says that it is there."""
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-O0"))  # a name of its own, quickly made
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.main() == 0
    first = capsys.readouterr().out
    path, compiled = native.build()
    assert not compiled
    assert str(path) in first
    assert "compiled in" in first
    assert build.main() == 0
    assert "ready already" in capsys.readouterr().out


def test_no_compiler_is_exit_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a compiler the exit status is 1 and stderr says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.main() == 1
    assert "install gcc or clang" in capsys.readouterr().err
    monkeypatch.setenv("HEADSTART_KERNELS", "reference")
    assert build.main() == 0  # they are not wanted
    assert "install gcc or clang" in capsys.readouterr().err
