"""The decoder on its kernels: in Triton's interpreter, and with tensors that claim to be on a GPU.

The second runs every operation of torch on tensors without data that say they are on `cuda:0`, and
whose mixing with tensors of the CPU is an error, as on a GPU; kernels are planned and not run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.decoder import Batch
from headstart.engine.device import decoder as decoder_module
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.device.place import Place, on_gpu
from headstart.engine.device.step import HostStep, step_in
from headstart.engine.device.storage import DeviceKvCache
from headstart.engine.device.weights import GgufSource, load
from headstart.kernels.gpu.launch import Launch
from tests.engine.device.fake_gpu import GPU, Waits
from tests.engine.device.interpret import BOUNDS
from tests.engine.device.test_step import batch
from tests.engine.tiny_gguf import QWEN2, write_tiny_gguf
from tests.kernels.gpu.interpreter import assert_passed


@pytest.mark.parametrize("kind", BOUNDS)
def test_in_the_interpreter(kind: str) -> None:
    """Chunks and decode rows, filled-up steps, and codes: as in plain torch."""
    assert_passed("tests.engine.device.interpret", kind)


class Launched:
    """The launches of a step, none of which is run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels: list[str] = []
        self.devices: set[str] = set()
        monkeypatch.setattr(Launch, "run", lambda launch: self._add(launch))

    def _add(self, launch: Launch) -> None:
        self.kernels.append(launch.kernel.__name__)
        tensors = [part for part in launch.args.values() if isinstance(part, torch.Tensor)]
        self.devices |= {str(tensor.device) for tensor in tensors}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    # Reads numbers while a decoder is built, which tensors without data have not.
    monkeypatch.setattr(decoder_module, "turns", lambda f: torch.zeros(len(f)).long())
    return Launched(monkeypatch)


@pytest.fixture
def on_a_gpu(launched: Launched, tmp_path: Path) -> Iterator[DeviceDecoder]:
    """A tiny model whose tensors claim to lie on a GPU."""
    file = GgufFile(write_tiny_gguf(tmp_path / "tiny.gguf", QWEN2))
    spec = DecoderSpec.from_gguf(file)
    with FakeTensorMode(allow_non_fake_inputs=True):
        place = on_gpu(GPU)
        yield DeviceDecoder(spec, load(GgufSource(file, spec, place), spec, place), place)


def cache_for(spec: DecoderSpec, kv_dtype: str) -> DeviceKvCache:
    sizes = {"layers": spec.layers, "kv_heads": spec.kv_heads, "head_dim": spec.head_dim}
    return DeviceKvCache(device=GPU, block_size=4, pool_bytes=1 << 16, kv_dtype=kv_dtype, **sizes)


def compute(decoder: DeviceDecoder, cache: DeviceKvCache, host: HostStep, **more: Any) -> Any:
    memory = torch.empty(host.nbytes, dtype=torch.uint8, device=GPU)
    return decoder._compute(step_in(memory, host), cache, **more)


@pytest.fixture
def mixed() -> Batch:
    """Made where tensors have data."""
    return batch([1, 4, 1])


@pytest.fixture
def decoding() -> HostStep:
    return HostStep.of(batch([1, 1, 1])).padded(4, 8)


@pytest.fixture
def chunks(mixed: Batch) -> HostStep:
    return HostStep.of(mixed)


@pytest.mark.parametrize("kv_dtype", ["fp32", "fp16", "int8", "fp8"])
def test_a_step_stays_on_the_gpu(
    chunks: HostStep,
    decoding: HostStep,
    launched: Launched,
    on_a_gpu: DeviceDecoder,
    kv_dtype: str,
) -> None:
    """Chunks with soft tokens and observed queries, and a filled-up decode step: no tensor of the
    CPU meets one of the GPU, and every kernel gets tensors of the GPU alone."""
    spec, cache = on_a_gpu.spec, cache_for(on_a_gpu.spec, kv_dtype)
    soft = torch.zeros(2, device=GPU).long(), torch.zeros(2, spec.hidden, device=GPU)
    seen = torch.zeros(spec.layers, len(chunks.wanted), spec.heads, spec.head_dim, device=GPU)
    logits = compute(on_a_gpu, cache, chunks, soft=soft, queries=seen)
    assert (logits.device, logits.dtype) == (GPU, torch.float32)
    assert logits.shape == (len(chunks.wanted), spec.vocab_size)
    assert compute(on_a_gpu, cache, decoding).shape == (4, spec.vocab_size)
    assert launched.devices == {"cuda:0"}
    # Two groups of rows in the first step, one in the second.
    assert launched.kernels.count("_attention") == spec.layers * 3
    assert launched.kernels.count("_rope_write") == spec.layers * 2


def test_a_step_may_want_no_logits(
    chunks: HostStep, launched: Launched, on_a_gpu: DeviceDecoder
) -> None:
    """While people speak, most steps only prefill: no row goes through the head."""
    host = replace(chunks, wanted=np.zeros(0, np.int64))
    logits = compute(on_a_gpu, cache_for(on_a_gpu.spec, "fp32"), host)
    assert logits.shape == (0, on_a_gpu.spec.vocab_size)


def test_k_and_v_of_fp32_are_bf16_on_a_gpu(on_a_gpu: DeviceDecoder) -> None:
    """Half the bytes: it is what they were computed in."""
    cache = cache_for(on_a_gpu.spec, "fp32")
    assert cache.pools[0].k.dtype == torch.bfloat16
    assert cache.bytes_per_token == 2 * 3 * 2 * 16 * 2


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
def test_moves_and_offloading_come_from_the_cpu(on_a_gpu: DeviceDecoder, kv_dtype: str) -> None:
    """Slots and angles are on the host, and so is what is offloaded."""
    cache = cache_for(on_a_gpu.spec, kv_dtype)
    slots, angles = torch.zeros(3).long(), torch.zeros(3, 8)
    cache.move(slots, slots)
    cache.rotate_keys(slots, slots, angles, angles)
    cache.copy_block(0, 1)
    saved = cache.save_block(0, 3)
    assert saved.device.type == "cpu"
    cache.load_block(1, saved)
    assert cache.gather(0, slots).device == GPU
    assert on_a_gpu.embed(slots).device.type == "cpu"


def test_a_step_runs_on_its_own_gpu(
    mixed: Batch, launched: Launched, on_a_gpu: DeviceDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton launches, and CUDA graphs record, on the current device, wherever the tensors are: so
    a step makes its decoder's device the current one."""
    second = Place(torch.device("cuda:1"), torch.bfloat16, on_a_gpu.place.operations)
    current = ["cuda:0"]
    seen: list[str] = []

    @contextlib.contextmanager
    def device(which: torch.device) -> Iterator[None]:
        current.append(str(which))
        yield
        current.pop()

    def forward(*_: object) -> torch.Tensor:
        seen.append(current[-1])
        return torch.empty(0)

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(on_a_gpu, "place", second)
    monkeypatch.setattr(on_a_gpu, "_forward", forward)
    on_a_gpu.forward(mixed, cache_for(on_a_gpu.spec, "fp16"))
    assert (seen, current) == (["cuda:1"], ["cuda:0"])


def test_a_step_waits_for_nothing(
    decoding: HostStep, launched: Launched, on_a_gpu: DeviceDecoder
) -> None:
    """Nothing goes to the host between embedding and logits: so it can be captured in a graph."""
    cache = cache_for(on_a_gpu.spec, "int8")
    waits = Waits()  # type: ignore[no-untyped-call]
    with waits:
        compute(on_a_gpu, cache, decoding)
    with waits, pytest.raises(AssertionError):
        torch.zeros(2, device=GPU).cpu()
