"""Where a decoder runs: the device, the float type of its activations, and its operations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.config import EngineConfig
from headstart.engine.device.operations import Operations, TorchOperations
from headstart.engine.device.storage import DeviceKvCache
from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.make_cache import make_cache
from headstart.engine.kvcache.storage import KvCache


@dataclass(frozen=True, slots=True)
class Place:
    """`dtype`: of activations, and of weights that are not packed. The sum of the layers is carried
    in `wide`."""

    device: torch.device
    dtype: torch.dtype
    operations: Operations

    @property
    def wide(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def current(self) -> AbstractContextManager[object]:
        """Within it this is the current device: where Triton launches and CUDA graphs record,
        wherever the tensors are."""
        return torch.cuda.device(self.device) if self.is_gpu else nullcontext()

    def to_host(self, x: Tensor) -> Tensor:
        """x, which is here, on the host, computed: from a GPU by way of pinned memory, which is
        several times as fast. For what is soon dropped: that memory is short."""
        if not self.is_gpu:
            return x.cpu()
        host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        host.copy_(x, non_blocking=True)
        self.wait()
        return host

    def wait(self) -> None:
        """Until what is enqueued on the current stream has ended."""
        if self.is_gpu:
            torch.cuda.current_stream(self.device).synchronize()

    def free_bytes(self) -> int:
        """Memory that is free on the GPU."""
        return int(torch.cuda.mem_get_info(self.device)[0])

    def make_cache(self, spec: DecoderSpec, config: EngineConfig) -> tuple[KvCache, BlockPool]:
        """A cache here, and its block pool. Raises `BadSettings`."""
        if config.kv_vision_dtype != "same":
            expected = "'same' where K/V lie on a device"
            raise BadSettings("kv_vision_dtype", expected, config.kv_vision_dtype)
        return make_cache(spec, config, partial(DeviceKvCache, device=self.device))


def on_cpu(dtype: torch.dtype = torch.float32) -> Place:
    """In plain torch on the CPU: for tests."""
    return Place(torch.device("cpu"), dtype, TorchOperations())


def on_gpu(device: torch.device) -> Place:
    """In bf16 by Triton kernels."""
    # With it comes Triton, which a CPU does without.
    from headstart.engine.device.triton_operations import TritonOperations

    return Place(device, torch.bfloat16, TritonOperations())
