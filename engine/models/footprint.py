"""The memory a model's weights will take, computed by building it without data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headstart.engine.api.host import available_bytes
from headstart.engine.device.decoder import OnDevice
from headstart.engine.models.checkpoint.errors import NotEnoughMemory
from headstart.engine.models.checkpoint.parts import VISION
from headstart.engine.models.decoder.choice import in_int8, in_torch
from headstart.engine.models.families import Loading
from headstart.engine.models.source import ModelSource
from headstart.engine.models.working_memory import encoding_bytes

_INT8_BYTES = 34 / 32  # per weight, with its share of a scale
_IN_FLOAT = ("position_embedding.weight", "conv1.weight", "conv2.weight")  # of int8 encoders
# Beside weights, K/V and encoders at work: libraries, activations of the largest step, quantisation
# buffers.
OVERHEAD_BYTES = 1 << 29


@dataclass(slots=True)
class SizeCounter:
    """`engine.models.checkpoint.tensors.Tensors` without data, which adds up sizes."""

    dtype: torch.dtype
    int8: bool
    int8_encoders: bool = False
    bytes: float = 0.0

    def has(self, name: str) -> bool:
        return True

    def copied(self, name: str) -> None:
        """Nothing to release."""

    def take(self, name: str, *shape: int) -> Tensor:
        decodes = name.startswith("decoder.") or name == "lm_head.weight"
        int8 = self.int8 if decodes else self.int8_encoders and not name.endswith(_IN_FLOAT)
        each = _INT8_BYTES if int8 and len(shape) > 1 else self.dtype.itemsize
        self.bytes += math.prod(shape) * each
        return torch.empty(shape, dtype=self.dtype, device="meta")


def weights_bytes(source: ModelSource, how: Loading) -> int:
    """Memory of all weights loaded as `how` says. Raises as `source.load` does for a directory
    whose sizes cannot be read."""
    measured = SizeCounter(how.dtype, _is_int8(how), how.int8_encoders)
    source.on(replace(how, build=in_torch, encoders=None, digest=None), measured)
    return int(measured.bytes)


def picture_bytes(
    source: ModelSource, how: Loading, together: int = 1, budget_tokens: int = 1 << 30
) -> int:
    """Working memory of the largest batch of pictures (`engine.models.working_memory`); 0 if
    pictures are encoded elsewhere, or the model takes none."""
    if any(name.startswith(how.left_out) for name in VISION if how.left_out):
        return 0
    # In fp32, since activations are: weights of another form are widened by small stripes.
    sizes = replace(how, dtype=torch.float32, build=in_torch, encoders=None, digest=None)
    model = source.on(sizes, SizeCounter(torch.float32, int8=False))
    return encoding_bytes(model, together, budget_tokens)


def check_fits(
    source: ModelSource,
    how: Loading,
    kv_pool_bytes: int,
    together: int = 1,
    budget_tokens: int = 1 << 30,
) -> int:
    """Bytes of the weights. Raises `NotEnoughMemory` if they, K/V, the largest batch of pictures
    (`together`, within `budget_tokens`) and other computation need more than is available to this
    process, or free on the GPU."""
    weights = weights_bytes(source, how)
    place = how.build.place if isinstance(how.build, OnDevice) else how.encoders
    gpu = place if place is not None and place.is_gpu else None
    left = available_bytes() if gpu is None else gpu.free_bytes()
    if left is None:
        return weights
    beside = kv_pool_bytes + OVERHEAD_BYTES
    if gpu is None or how.encoders is not None:
        beside += picture_bytes(source, how, together, budget_tokens)
    if weights + beside > left:
        form = "int8" if _is_int8(how) else str(how.dtype).removeprefix("torch.")
        raise NotEnoughMemory(source.name, form, weights, beside, left)
    return weights


def _is_int8(how: Loading) -> bool:
    """Whether the decoder's weights are."""
    return how.build.int8 if isinstance(how.build, OnDevice) else how.build is in_int8
