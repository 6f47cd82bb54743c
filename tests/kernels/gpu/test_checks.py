"""Each Triton kernel is near its fp64 reference, in Triton's interpreter.

What the interpreter cannot show: bf16, whose casts it cuts off and whose bits it multiplies (fp16
is run instead); races; and anything about speed.
"""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.gpu.checks import CHECKS, CheckFailedError, Compared, run_guarded
from headstart.kernels.gpu.launch import Launch
from tests.kernels.gpu.interpreter import assert_passed

# Two processes, since each imports torch and Triton anew; attention takes as long as all the rest.
GROUPS = (
    ("paged_attention", "random_attention"),
    (
        *("rope_write", "rms_norm", "silu_mul", "packed_matmul"),
        *("log_mel", "frame_scores", "pooling"),
        *("batch_invariance", "nothing_else_is_touched", "refusals", "every_code"),
    ),
)


@pytest.mark.parametrize("names", GROUPS, ids=("attention", "the rest"))
def test_in_the_interpreter(names: tuple[str, ...]) -> None:
    """Odd sizes, between NaN: near the fp64 twin, every output written, nothing beyond."""
    assert_passed("tests.kernels.gpu.interpret", *names)


def test_every_check_is_run() -> None:
    """A check that is added is named in a group."""
    assert set(CHECKS) <= {name for group in GROUPS for name in group}


class _Kernel:
    """Stands for a kernel: calls a function with its arguments."""

    def __init__(self, function: object) -> None:
        self._function = function

    def __getitem__(self, grid: tuple[int, ...]) -> object:
        return lambda **given: self._function(given["p_out"])  # type: ignore[operator]


def _launch(function: object, out: torch.Tensor) -> Launch:
    return Launch(_Kernel(function), (1,), {"p_out": out}, {})


def test_a_write_beyond_an_output_is_seen() -> None:
    """The guards around a tensor notice one element."""

    def beyond(out: torch.Tensor) -> None:
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)

    with pytest.raises(CheckFailedError, match="beyond"):
        run_guarded([_launch(beyond, torch.zeros(3))])


def test_what_is_not_written_is_seen() -> None:
    """Outputs begin as NaN, and NaN is near nothing."""
    out = torch.zeros(3)
    run_guarded([_launch(lambda out: out[:2].fill_(0.0), out)])
    exact = torch.zeros(3, dtype=torch.float64)
    compared = Compared("half", out, torch.zeros(3), exact)
    with pytest.raises(CheckFailedError, match="half"):
        compared.require()
    Compared("whole", torch.zeros(3), torch.zeros(3), exact).require()


def test_a_wrong_number_is_seen() -> None:
    """One part in a thousand is more than fp32 explains."""
    exact = torch.linspace(1, 2, 9, dtype=torch.float64)
    theirs = exact.float()
    Compared("right", theirs, theirs, exact).require()
    with pytest.raises(CheckFailedError):
        Compared("wrong", theirs * 1.001, theirs, exact).require()
