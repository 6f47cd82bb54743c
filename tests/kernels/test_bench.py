"""The kernel benchmark runs through and ends in the JSON line that it documents."""

from __future__ import annotations

import json
import sys

import pytest

from headstart.kernels import bench, native


def test_timed_warms_up_and_counts() -> None:
    """One warm-up run, then `rounds` timed ones; the best is not above the median."""
    calls: list[int] = []
    timing = bench.timed(lambda: calls.append(1), 3)
    assert len(calls) == 4
    assert 0 <= timing.best_ms <= timing.ms


def test_last_line_is_the_documented_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small sizes through the whole program: every table has its keys and a row per case."""
    monkeypatch.setattr(bench, "ROTATION_BYTES", 1)
    monkeypatch.setattr(bench, "STREAM_BYTES", 1 << 16)
    monkeypatch.setattr(bench, "ROW_COUNTS", (1, 5))
    monkeypatch.setattr(bench, "NARROW", 256)
    monkeypatch.setattr(bench, "WIDE", 512)
    monkeypatch.setattr(bench, "CONTEXTS", (64,))
    monkeypatch.setattr(sys, "argv", ["bench", "--rounds", "1", "--threads", "1"])
    bench.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["threads"] == 1
    assert result["stream_gb_s"] > 0
    assert len(result["qlinear"]) == 2 * len(bench.KINDS)
    assert result["level"] == native.level()
    wanted = {"kind", "m", "n", "k", "ms", "best_ms", "gb_s", "gmac_s", "stream_share"}
    wanted |= {"peak_share"}
    assert all(wanted == set(row) for row in result["qlinear"])
    assert {(row["rows"], row["context"]) for row in result["attention"]} == {(1, 64), (64, 64)}
    shares = [row["peak_share"] for row in result["qlinear"]]
    if result["level"] in ("scalar", "reference"):
        assert result["peak_gmac_s"] is None
        assert set(shares) == {None}
    else:
        assert all(share > 0 for share in shares)
    assert {row["op"] for row in result["small"]} == {"rms_norm", "rope", "silu_mul"}
