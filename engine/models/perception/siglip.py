"""SigLIP's vision encoder: full attention within each picture, learned positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.decoder.layers import LayerNorm, attend, compute_dtype, onto
from headstart.engine.decoder.projection import Projection, projection
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.audio_tower import layer_norm
from headstart.engine.models.perception.passes import Passes, launched


@dataclass(frozen=True, slots=True)
class SiglipSizes:
    """Sizes of a SigLIP encoder. `image_px`: side of the square that it encodes."""

    width: int
    layers: int
    heads: int
    ffn: int
    image_px: int
    patch_px: int
    eps: float = 1e-6

    @property
    def side(self) -> int:
        """Patches along one side."""
        return self.image_px // self.patch_px


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    norm1: LayerNorm
    q: Projection
    k: Projection
    v: Projection
    out: Projection
    norm2: LayerNorm
    up: Projection
    down: Projection


class Siglip:
    """The encoder."""

    def __init__(self, tensors: Tensors, sizes: SiglipSizes, layers: int) -> None:
        """`layers`: number of the encoder's layers to run."""
        self.sizes = sizes
        patch = (sizes.width, 3, sizes.patch_px, sizes.patch_px)
        weight = tensors.take("embeddings.patch_embedding.weight", *patch).flatten(1)
        bias = tensors.take("embeddings.patch_embedding.bias", sizes.width)
        self._patch = projection(weight, bias)
        self._device, self._dtype = weight.device, compute_dtype(weight.dtype)
        positions = (sizes.side**2, sizes.width)
        self._positions = tensors.take("embeddings.position_embedding.weight", *positions)
        self._layers = [_layer(tensors, f"encoder.layers.{i}.", sizes) for i in range(layers)]
        self.passes: Passes = launched

    def encode(self, pixels: Tensor) -> Tensor:
        """[n, 3, image_px, image_px] -> [n, side ** 2, width]."""
        patch_px, side = self.sizes.patch_px, self.sizes.side
        pixels = pixels[..., : side * patch_px, : side * patch_px]
        cells = pixels.reshape(len(pixels), 3, side, patch_px, side, patch_px)
        values = cells.permute(0, 2, 4, 1, 3, 5).reshape(len(pixels), side**2, -1)
        given = onto(values, self._device)
        return self.passes("siglip", self._encoded, given, rows=len(pixels) * side**2)

    def _encoded(self, values: Tensor) -> Tensor:
        x = self._patch(values).to(self._dtype)
        x = x + self._positions.to(x.dtype)
        for layer in self._layers:
            normed = layer.norm1(x)
            q, k, v = (
                torch.unflatten(p(normed), -1, (self.sizes.heads, -1))
                for p in (layer.q, layer.k, layer.v)
            )
            x = x + layer.out(attend(q, k, v))
            x = x + layer.down(F.gelu(layer.up(layer.norm2(x)), approximate="tanh"))
        return x


def _layer(tensors: Tensors, prefix: str, sizes: SiglipSizes) -> _Layer:
    width, ffn = sizes.width, sizes.ffn

    def linear(name: str, rows: int, cols: int) -> Projection:
        weight = tensors.take(f"{prefix}{name}.weight", rows, cols)
        return projection(weight, tensors.take(f"{prefix}{name}.bias", rows))

    return _Layer(
        norm1=layer_norm(tensors, f"{prefix}layer_norm1", width, sizes.eps),
        q=linear("self_attn.q_proj", width, width),
        k=linear("self_attn.k_proj", width, width),
        v=linear("self_attn.v_proj", width, width),
        out=linear("self_attn.out_proj", width, width),
        norm2=layer_norm(tensors, f"{prefix}layer_norm2", width, sizes.eps),
        up=linear("mlp.fc1", ffn, width),
        down=linear("mlp.fc2", width, ffn),
    )
