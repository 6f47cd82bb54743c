"""What the LLaVA models share: which encoder layer is used, and the projector behind it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from headstart.engine.decoder.projection import Projection, projection
from headstart.engine.errors import UnsupportedModel
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Tensors


class LlavaProjector:
    """Linear, GELU, linear."""

    def __init__(self, tensors: Tensors, width: int, hidden: int, *, bias: bool = True) -> None:
        """`width`: of the encoder. Raises `BadWeights`."""
        self._up = _linear(tensors, "linear_1", hidden, width, bias)
        self._down = _linear(tensors, "linear_2", hidden, hidden, bias)

    def __call__(self, features: Tensor) -> Tensor:
        """[..., width] -> [..., hidden]."""
        return self._down(F.gelu(self._up(features)))


def layers_run(config: Config, layers: int, default: int = -1) -> int:
    """Number of an encoder's `layers` up to the one whose output is used, by `vision_feature_layer`
    of a config.json (`default` if it is not there). Raises `UnsupportedModel` for models that take
    several layers, or drop a class token."""
    chosen = config.text("vision_feature_select_strategy", "full")
    if chosen != "full":
        raise UnsupportedModel(config.path, "vision_feature_select_strategy", ["full"], chosen)
    at = config.integer("vision_feature_layer", default)
    return at if at >= 0 else layers + 1 + at


def _linear(tensors: Tensors, name: str, rows: int, cols: int, bias: bool) -> Projection:
    weight = tensors.take(f"{name}.weight", rows, cols)
    return projection(weight, tensors.take(f"{name}.bias", rows) if bias else None)
