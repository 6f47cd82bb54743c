"""headstart.engine.device.matrices: the type in which products are added up and returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from headstart.engine.device.matrices import FloatMatrix


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations that were called, with the type of what they returned."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[tuple[str, torch.dtype]] = []

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.made.append((str(function), out.dtype))
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_on_a_cpu_are_as_wide_as_asked(dtype: torch.dtype) -> None:
    """[rows, in] -> [rows, out], by plain multiplication."""
    x, weight = torch.randn(3, 8, dtype=dtype), torch.randn(5, 8, dtype=dtype)
    torch.testing.assert_close(FloatMatrix(weight).logits(x, dtype), x @ weight.T)


def test_logits_on_a_gpu_are_not_rounded_on_the_way() -> None:
    """Of bf16 weights torch is asked for the sums in fp32: none of the steps returns [rows, out] in
    bf16. Without a GPU only the calls are there to look at, not their numbers."""
    with FakeTensorMode(), Calls() as calls:
        x = torch.empty(3, 8, dtype=torch.bfloat16, device="cuda")
        weight = torch.empty(5, 8, dtype=torch.bfloat16, device="cuda")
        calls.made.clear()
        logits = FloatMatrix(weight).logits(x, torch.float32)
    assert (logits.shape, logits.dtype) == ((3, 5), torch.float32)
    assert calls.made[-1] == ("aten.mm.dtype", torch.float32)
    assert "aten.mm.default" not in dict(calls.made)
