"""`python -m kernels.build` says what it does and fails loudly."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import build, native


def test_prints_every_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a kernel, each ready afterwards."""
    assert build.main() == 0
    printed = capsys.readouterr().out
    for name in native.OPERATIONS:
        assert name in printed
        assert not native.build(name)[1]


def test_no_compiler_is_exit_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a compiler the exit status is 1 and stderr says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.main() == 1
    assert "install gcc or clang" in capsys.readouterr().err
