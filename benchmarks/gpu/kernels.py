"""The Triton kernels on a GPU, right first, then fast: a process of its own.

Every check of kernels/gpu runs on the device; then every case is timed beside what torch has for
the same, with a cold cache, and set in relation to the roofline: the larger of its bytes over the
memory's speed and its operations over the matrix units'. A kernel that is not right is not timed;
what was not reached in time is named.

`python -m headstart.benchmarks.gpu.kernels --out FILE` needs nothing but Python, torch, NumPy and
Triton.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from headstart.benchmarks import report
from headstart.benchmarks.gpu.stages import INCOMPLETE, Lines, add_limit, end_in, left_of

if TYPE_CHECKING:
    from headstart.kernels.gpu.cases import Case

CHECKS_SHARE = 0.6
"""Of the stage's time; what checks leave of it is for timing."""
TIMES_SHARE = 0.95  # and the last of it for what is under way
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


def need_gpu() -> None:
    """Raises NoGpuError."""
    if not torch.cuda.is_available():
        raise NoGpuError(
            "bench gpu: expected a GPU, torch finds none; --dry-run prints what would run, and "
            "--device cpu --model tiny tries everything else"
        )
    _need_triton()


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


def check_all(until_s: float, lines: Lines | None = None) -> dict[str, float | str]:
    """By check the largest ratio of our error to the reference's, or what is wrong. A line for
    each."""
    from headstart.kernels.gpu.checks import CHECKS, CheckFailedError

    found: dict[str, float | str] = {}
    for name, check in CHECKS.items():
        if time.monotonic() > until_s:
            found[name] = "not reached"
        else:
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
        if lines is not None:
            lines.add({"check": name, "found": found[name]})
    return found


# What a kernel of a case is checked by.
CHECKED_BY = {"pool_grid": "pooling", "best_match": "pooling", "merge": "pooling"}


def time_all(
    checked: dict[str, float | str],
    device: Device | None,
    until_s: float,
    lines: Lines | None = None,
) -> list[Any]:
    """A row for each case: median time, share of the roofline, and torch's time over ours. A line
    for each."""
    from headstart.kernels.gpu.cases import cases

    rows: list[Any] = []
    for case in cases():
        row: dict[str, Any] = {"kernel": case.kernel, "shape": case.shape}
        if isinstance(checked.get(CHECKED_BY.get(case.kernel, case.kernel)), str):
            row["error"] = "not timed: its check did not pass"
        elif time.monotonic() > until_s:
            row["error"] = "not reached"
        else:
            row |= _timed(case, device)
            report.say(f"{case.name}: {row}")
        rows.append(row)
        if lines is not None:
            lines.add(row)
    return rows


def _timed(case: Case, device: Device | None) -> dict[str, Any]:
    """A case's time, or what is wrong."""
    from headstart.kernels.gpu.launch import run as run_launches

    row: dict[str, Any] = {}
    try:
        torch.cuda.empty_cache()  # of the case before
        prepared = case.prepare("cuda")
        launches = prepared.launches
        us = _median_us(lambda: run_launches(launches))
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
    return row


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


def run(limit_s: float, lines: Lines) -> bool:
    """Check and time everything; a line for each. Whether all was right and reached."""
    start_s = time.monotonic()
    name = torch.cuda.get_device_name()
    device = known(name)
    report.say(f"{name}: {device or 'not known, so no share of its roofline'}")
    lines.add(
        {
            "device": name,
            "torch": torch.__version__,
            # First: after a fault of a kernel nothing runs any more.
            "copy_gb_s": round(_copy_gb_s(), 1),
        }
    )
    checked = check_all(start_s + limit_s * CHECKS_SHARE, lines)
    rows = time_all(checked, device, start_s + limit_s * TIMES_SHARE, lines)
    right = not any(isinstance(found, str) for found in checked.values())
    return right and not any("error" in row for row in rows)


def known(name: str) -> Device | None:
    """The datasheet of the device that calls itself so."""
    return next((device for part, device in DEVICES.items() if part in name), None)


def main() -> None:
    """A stage's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    add_limit(parser, 200.0)
    options = parser.parse_args()
    limit_s = left_of(options)
    end_in(limit_s)
    try:
        need_gpu()
    except NoGpuError as error:
        sys.exit(str(error))
    torch.cuda.set_device(torch.device(options.device).index or 0)
    sys.exit(0 if run(limit_s, Lines(options.out)) else INCOMPLETE)


if __name__ == "__main__":
    main()
