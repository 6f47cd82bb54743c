"""`headstart bench gpu`: the Triton kernels on a GPU, right first, then fast.

Every check of kernels/gpu runs on the device; then every case is timed beside what torch has for
the same, with a cold cache, and set in relation to the roofline: the larger of its bytes over the
memory's speed and its operations over the matrix units'. A kernel that is not right is not timed.
Each part has a time limit, and all together stay within eight minutes; what was not reached is
named, and the result is not complete.

`--dry-run` needs no GPU: it prints what would run, with bytes, operations and the bound for each
device that is known. On a machine with nothing but Python, torch, NumPy and Triton:
`python -m headstart.benchmarks.gpu --json`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from headstart.benchmarks import report

CHECKS_S, TIMES_S = 180.0, 240.0
WARM_UP_MS, REPEAT_MS = 20, 100
COPY_BYTES = 1 << 30


class NoGpuError(RuntimeError):
    """The benchmark needs a GPU, and torch finds none; or no Triton to run on it."""


@dataclass(frozen=True)
class Device:
    """A vendor's datasheet: memory in GB/s, dense 16-bit matrix units in TFLOP/s."""

    gb_s: float
    tflop_s: float

    def bound_us(self, size_bytes: int, flops: int) -> float:
        """The least time that the roofline allows."""
        return max(size_bytes / self.gb_s / 1e3, flops / self.tflop_s / 1e6)


DEVICES = {
    "A100": Device(2039, 312),
    "H100": Device(3350, 989),
    "H200": Device(4800, 989),
    "RTX 5090": Device(1792, 209),
    "MI300X": Device(5300, 1307),
}
"""A100 and H100: the SXM parts with 80 GB. The RTX 5090's figure is with fp32 sums."""


def _need_triton() -> None:
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise NoGpuError(
            "expected Triton, which comes with torch on Linux; it is not there"
        ) from None


def plan() -> list[dict[str, Any]]:
    """What would be timed: sizes, launches, and the bound by device. Raises NoGpuError."""
    _need_triton()
    from headstart.kernels.gpu.cases import cases

    return [
        {
            "kernel": case.kernel,
            "shape": case.shape,
            "bytes": case.bytes,
            "flops": case.flops,
            "launches": [
                {"grid": list(launch.grid), "threads": launch.threads}
                for launch in case.prepare("meta").launches
            ],
            "bound_us": {
                name: round(device.bound_us(case.bytes, case.flops), 2)
                for name, device in DEVICES.items()
            },
        }
        for case in cases()
    ]


def check_all(until_s: float) -> dict[str, float | str]:
    """By check the largest ratio of our error to the reference's, or what is wrong."""
    from headstart.kernels.gpu.checks import CHECKS, CheckFailedError

    found: dict[str, float | str] = {}
    for name, check in CHECKS.items():
        if time.monotonic() > until_s:
            found[name] = "not reached"
            continue
        torch.manual_seed(0)
        worst = 0.0
        try:
            for compared in check("cuda"):
                compared.require()
                worst = max(worst, compared.ratio)
            found[name] = round(worst, 3)
        except CheckFailedError as error:
            found[name] = str(error)
        except Exception as error:
            # Of the compiler: the others are still checked. Of the driver: they fail likewise.
            found[name] = f"{type(error).__name__}: {str(error)[-400:]}"
        report.say(f"{name}: {found[name]}")
    return found


# What a kernel of a case is checked by.
CHECKED_BY = {"pool_grid": "pooling", "best_match": "pooling", "merge": "pooling"}


def time_all(checked: dict[str, float | str], device: Device | None, until_s: float) -> list[Any]:
    """A row for each case: median time, share of the roofline, and torch's time over ours."""
    from headstart.kernels.gpu.cases import cases
    from headstart.kernels.gpu.launch import run as run_launches

    rows: list[Any] = []
    for case in cases():
        row: dict[str, Any] = {"kernel": case.kernel, "shape": case.shape}
        rows.append(row)
        if isinstance(checked.get(CHECKED_BY.get(case.kernel, case.kernel)), str):
            row["error"] = "not timed: its check did not pass"
            continue
        if time.monotonic() > until_s:
            row["error"] = "not reached"
            continue
        try:
            torch.cuda.empty_cache()  # of the case before
            prepared = case.prepare("cuda")
            launches = prepared.launches
            us = _median_us(lambda launches=launches: run_launches(launches))  # type: ignore[misc]
            row |= {"us": round(us, 2), "gb_s": round(case.bytes / us / 1e3, 1)}
            if device is not None:
                bound_us = device.bound_us(case.bytes, case.flops)
                row |= {"bound_us": round(bound_us, 2), "share": round(bound_us / us, 3)}
            if prepared.peer is not None:
                peer_us = _median_us(prepared.peer)
                row |= {"peer": prepared.peer_name, "peer_us": round(peer_us, 2)}
                row["ratio"] = round(peer_us / us, 2)
        except Exception as error:  # of the compiler, the driver or memory: the others still run
            row["error"] = f"{type(error).__name__}: {str(error)[-400:]}"
        report.say(f"{case.name}: {row}")
    return rows


def _median_us(function: Callable[[], object]) -> float:
    """By events on the device, the last-level cache emptied before each run."""
    from triton.testing import do_bench  # type: ignore[import-untyped]

    ms = do_bench(function, warmup=WARM_UP_MS, rep=REPEAT_MS, return_mode="median")
    return float(ms) * 1e3


def _copy_gb_s() -> float:
    """A plain copy on the device, bytes read and written."""
    source = torch.ones(COPY_BYTES // 4, device="cuda")
    to = torch.empty_like(source)
    return 2 * COPY_BYTES / _median_us(lambda: to.copy_(source)) / 1e3


def run(*, dry_run: bool, as_json: bool) -> int:
    """The whole benchmark; 1 if something was wrong or not reached. Raises NoGpuError."""
    if dry_run:
        rows = plan()
        for row in rows:
            bounds = ", ".join(f"{name} {us}" for name, us in row["bound_us"].items())
            report.say(f"{row['kernel']} {row['shape']}: {row['bytes'] / 1e6:.2f} MB, {bounds} us")
        report.finish("gpu", {"dry_run": True, "rows": rows}, as_json=as_json)
        return 0
    if not torch.cuda.is_available():
        raise NoGpuError(
            "bench gpu: expected a GPU, torch finds none; --dry-run prints what would run"
        )
    _need_triton()
    start_s = time.monotonic()
    name = torch.cuda.get_device_name()
    device = next((known for part, known in DEVICES.items() if part in name), None)
    report.say(f"{name}: {device or 'not known, so no share of its roofline'}")
    copy_gb_s = round(_copy_gb_s(), 1)  # first: after a fault of a kernel nothing runs any more
    checked = check_all(start_s + CHECKS_S)
    rows = time_all(checked, device, start_s + CHECKS_S + TIMES_S)
    complete = not any(isinstance(found, str) for found in checked.values())
    complete = complete and not any("error" in row for row in rows)
    result = {
        "device": name,
        "torch": torch.__version__,
        "complete": complete,
        "copy_gb_s": copy_gb_s,
        "checks": checked,
        "rows": rows,
        "seconds": round(time.monotonic() - start_s, 1),
    }
    report.finish("gpu", result, as_json=as_json)
    return 0 if complete else 1


def main() -> None:
    """For machines without headstart's other dependencies."""
    parser = argparse.ArgumentParser(prog="python -m headstart.benchmarks.gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="print what would run")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON line on stdout")
    options = parser.parse_args()
    try:
        sys.exit(run(dry_run=options.dry_run, as_json=options.json))
    except NoGpuError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
