"""The kernels' stage where there is no GPU, and with kernels that are not right."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from headstart.benchmarks.cli import app
from headstart.benchmarks.gpu import kernels as gpu
from headstart.benchmarks.gpu.stages import Lines
from headstart.kernels.gpu import checks
from headstart.kernels.gpu.checks import Compared


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that has one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_plan_is_printed_without_a_gpu() -> None:
    """Every kernel at its sizes, with launches and a bound for each device that is known."""
    done = CliRunner().invoke(app, ["gpu", "--dry-run", "--json"])
    assert done.exit_code == 0
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert len({(row["kernel"], row["shape"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["launches"], row
        assert set(row["bound_us"]) == set(gpu.DEVICES)
        assert min(row["bound_us"].values()) > 0
    decode = rows[0]
    # 32 sequences of 8,192 keys, K and V of 4 heads of 128 in two bytes, and the queries.
    assert decode["bytes"] == 32 * 8192 * 2 * 4 * 128 * 2 + 2 * 32 * 28 * 128 * 2
    assert decode["bound_us"]["H200"] == pytest.approx(decode["bytes"] / 4.8e12 * 1e6, rel=1e-3)


def test_without_a_gpu_it_says_so() -> None:
    """An error that names what is missing and what works without it."""
    done = CliRunner().invoke(app, ["gpu", "--json"])
    assert done.exit_code == 2
    assert "expected a GPU" in done.output
    assert "--dry-run" in done.output
    assert "--device cpu" in done.output


def test_every_case_has_a_check() -> None:
    """What is timed is checked first."""
    kernels = {row["kernel"] for row in gpu.plan()}
    assert {gpu.CHECKED_BY.get(kernel, kernel) for kernel in kernels} == set(checks.CHECKS)


def test_a_wrong_kernel_is_named_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not near enough, one that raises, one that is right: the others go on."""
    exact = torch.ones(4, dtype=torch.float64)

    def right(device: str) -> Iterator[Compared]:
        yield Compared("right", exact.float(), exact.float(), exact)

    def wrong(device: str) -> Iterator[Compared]:
        yield Compared("wrong", exact.float() * 2, exact.float(), exact)

    def broken(device: str) -> Iterator[Compared]:
        yield from right(device)
        raise RuntimeError("no such instruction")

    known = {"silu_mul": wrong, "rms_norm": broken, "rope_write": right}
    monkeypatch.setattr(checks, "CHECKS", known)
    found = gpu.check_all(time.monotonic() + 1000)
    assert "times the reference" in str(found["silu_mul"])
    assert found["rms_norm"] == "RuntimeError: no such instruction"
    assert found["rope_write"] == 0.0
    rows = gpu.time_all(dict.fromkeys(checks.CHECKS, "wrong"), None, time.monotonic() + 1000)
    named = [row for row in rows if row["kernel"] in known]
    assert named
    assert all("check" in row["error"] for row in named)


def test_what_is_not_reached_in_time_is_named() -> None:
    """The limit is looked at before each check and each case."""
    late = time.monotonic() - 1
    assert set(gpu.check_all(late).values()) == {"not reached"}
    assert {row["error"] for row in gpu.time_all({}, None, late)} == {"not reached"}


def test_each_finding_is_a_line_at_once(tmp_path: Path) -> None:
    """What a process has written before it hangs is known."""
    lines, late = Lines(tmp_path / "kernels.jsonl"), time.monotonic() - 1
    gpu.check_all(late, lines)
    gpu.time_all({}, None, late, lines)
    rows = lines.read()
    assert [row["check"] for row in rows if "check" in row] == list(checks.CHECKS)
    assert len(rows) == len(checks.CHECKS) + len(gpu.plan())


def test_a_fault_of_the_driver_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an illegal access every call of CUDA fails, freeing memory too: all rows say so."""

    def fail() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "empty_cache", fail)
    rows = gpu.time_all({}, None, time.monotonic() + 1000)
    assert {row["error"] for row in rows} == {
        "RuntimeError: an illegal memory access was encountered"
    }
