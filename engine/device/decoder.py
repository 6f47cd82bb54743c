"""A Llama or Qwen2 decoder whose weights and K/V lie on a device.

The sum that runs through the layers is fp32, or fp64, whatever the activations are. Logits stay on
the device, where they are sampled (`sampling`). A step of decode rows alone is replayed
(`recorded`); one with chunks, soft tokens or observed queries is launched kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import Batch
from headstart.engine.decoder.layers import onto
from headstart.engine.decoder.rotary import Rotary, SectionRotary, TablelessRotary, frequencies
from headstart.engine.device.place import Place
from headstart.engine.device.recorded import (
    CudaRecorder,
    PlainRecorder,
    RecordedSteps,
    Recorder,
    sizes_up_to,
)
from headstart.engine.device.step import HostStep, Step, StepBuffer
from headstart.engine.device.storage import DeviceKvCache
from headstart.engine.device.weights import DeviceWeights, DirectorySource, TensorsLike, load
from headstart.engine.errors import NoDevice
from headstart.engine.kvcache.storage import KvCache
from headstart.kernels.gpu.reference import turns


class DeviceDecoder:
    """`headstart.engine.decoder.decoder.TextDecoder` at a `place`."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DeviceWeights,
        place: Place,
        sections: Sequence[int] = (),
    ) -> None:
        """`sections`: as of `SectionRotary`; none: one axis."""
        self.spec, self.weights, self.place = spec, weights, place
        self.rotary: Rotary = (
            SectionRotary(spec, sections, place.wide)
            if sections
            else TablelessRotary(spec, place.wide)
        )
        self._sections = tuple(sections)
        self._turns = turns(frequencies(spec)).to(place.device)
        self._recorded: tuple[DeviceKvCache, RecordedSteps] | None = None

    @property
    def nbytes(self) -> int:
        """Of all weights, on the device."""
        return self.weights.nbytes

    def embed(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> fp32 or fp64 [rows, hidden], both on the host."""
        with torch.inference_mode():
            rows = self.weights.embedding.rows(tokens.to(self.place.device), self.place.wide)
            return rows.cpu()

    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Store K/V of all rows in `cache`; returns logits [len(wanted), vocab_size] on the device,
        in fp32 or fp64, which are overwritten by the next call. `batch` is on the host. Waits for
        nothing on a GPU unless queries are observed."""
        assert isinstance(cache, DeviceKvCache)
        with self.place.current():
            return self._forward(batch, cache)

    def _forward(self, batch: Batch, cache: DeviceKvCache) -> Tensor:
        step = HostStep.of(batch)
        recorded = self._steps(cache)
        if recorded.takes(step) and batch.queries is None and not len(batch.soft_rows):
            logits = recorded.run(step)
            if not np.array_equal(step.wanted, np.arange(len(logits))):
                logits = logits[_on(step.wanted, self.place)]
            return logits
        on_device = StepBuffer(step, self.place.device).load(step)
        queries = batch.queries
        seen = None if queries is None else queries.to(self.place.device, copy=True)
        logits = self._compute(on_device, cache, self._soft(batch, step), seen)
        if queries is not None and seen is not None:
            queries.copy_(seen)
        return logits

    def prepare(self, cache: KvCache, streams: int, tokens: int) -> int:
        """Record decode steps of up to so many streams with contexts of up to so many tokens, so
        that no session waits for it later. Returns how many sizes that were.

        Raises `NoDevice` where there is no room for a step.
        """
        assert isinstance(cache, DeviceKvCache)
        axes = len(self._sections)
        sizes = sizes_up_to(streams, -(-tokens // cache.block_size))
        with self.place.current(), torch.inference_mode():
            try:
                for rows, blocks in sizes:
                    self._steps(cache).run(HostStep.idle(rows, blocks, axes))
            except torch.OutOfMemoryError:
                missing = "its memory has no room for a step beside weights and K/V"
                remedy = "give K/V less of it (kv_pool_mib), or use a smaller model"
                raise NoDevice(str(self.place.device), missing, remedy) from None
            self.place.wait()  # what fails on the device fails here, before there are sessions
        return len(sizes)

    def recordings(self, cache: KvCache) -> tuple[int, str | None]:
        """How many sizes of steps are recorded, and why no others can be; None: they can."""
        assert isinstance(cache, DeviceKvCache)
        steps = self._steps(cache)
        return len(steps.sizes), steps.failure

    def _steps(self, cache: DeviceKvCache) -> RecordedSteps:
        """Recordings hold the addresses of one cache's pools."""
        if self._recorded is None or self._recorded[0] is not cache:
            device = self.place.device
            recorder: Recorder = CudaRecorder(device) if self.place.is_gpu else PlainRecorder()
            steps = RecordedSteps(recorder, lambda step: self._compute(step, cache), device)
            self._recorded = cache, steps
        return self._recorded[1]

    def _soft(self, batch: Batch, step: HostStep) -> tuple[Tensor, Tensor] | None:
        """Rows of soft tokens and their vectors, on the device."""
        if not len(batch.soft_rows):
            return None
        rows = step.row_of[batch.soft_rows.numpy()]
        vectors = onto(batch.soft_vectors, self.place.device).to(self.place.wide)
        return _on(rows, self.place), vectors

    def _compute(
        self,
        step: Step,
        cache: DeviceKvCache,
        soft: tuple[Tensor, Tensor] | None = None,
        queries: Tensor | None = None,
    ) -> Tensor:
        """Logits [wanted, vocab_size] on the device. Writes `queries` [layers, wanted, heads,
        head_dim]. Waits for nothing on a GPU."""
        operations, spec, wide = self.place.operations, self.spec, self.place.wide
        x = self.weights.embedding.rows(step.tokens, wide)
        if soft is not None:
            x = x.index_copy(0, *soft)
        delta = torch.zeros(x.shape, dtype=self.place.dtype, device=x.device)
        for i, (layer, pools) in enumerate(zip(self.weights.layers, cache.pools, strict=True)):
            normed, x = operations.rms_norm(delta, layer.attn_norm, spec.rms_eps, x)
            q, k, v = (torch.unflatten(part, 1, (-1, spec.head_dim)) for part in layer.qkv(normed))
            if cache.is_coded:
                group = spec.heads // spec.kv_heads
                q = q * layer.key_scale.repeat_interleave(group, dim=0)
                k = k / layer.key_scale
            q = operations.rope_write(
                q, k, v, step.positions, self._turns, step.slots, pools, self._sections
            )
            if queries is not None:
                queries[i] = q[step.wanted].to(queries.dtype)
            heads = torch.empty_like(q)
            for group_of in step.groups:
                operations.paged_attention(
                    q[group_of.rows],
                    pools,
                    group_of.tables,
                    group_of.starts,
                    group_of.contexts,
                    spec.head_dim**-0.5,
                    group_of.longest,
                    heads[group_of.rows],
                )
            delta = layer.out(heads.flatten(1))
            normed, x = operations.rms_norm(delta, layer.ffn_norm, spec.rms_eps, x)
            gate, up = layer.gate_up(normed)
            delta = layer.down(operations.silu_mul(gate, up))
        normed, _ = operations.rms_norm(
            delta[step.wanted], self.weights.norm, spec.rms_eps, x[step.wanted]
        )
        return self.weights.head.logits(normed, wide)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Builds decoders at `place` on a model directory's tensors, which become int8 if so asked
    (`headstart.engine.models.decoder.choice.Build`)."""

    place: Place
    int8: bool = False

    def __call__(
        self, tensors: TensorsLike, spec: DecoderSpec, sections: Sequence[int] = ()
    ) -> DeviceDecoder:
        """Raises `BadWeights` naming what is missing or misshapen, or `NoDevice`."""
        source = DirectorySource(tensors, spec, self.place, int8=self.int8)
        return DeviceDecoder(spec, load(source, spec, self.place), self.place, sections)


def _on(numbers: object, place: Place) -> Tensor:
    return torch.as_tensor(numbers).to(place.device)
