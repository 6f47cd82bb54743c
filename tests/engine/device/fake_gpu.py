"""What tests on tensors that claim to be on a GPU share."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("cuda:0")


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where an operation would wait for a GPU: its number goes to the host."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        came = [part for part in args if isinstance(part, torch.Tensor)]
        to_host = isinstance(out, torch.Tensor) and out.device.type == "cpu"
        assert not (to_host and any(part.device.type == "cuda" for part in came)), function
        return out
