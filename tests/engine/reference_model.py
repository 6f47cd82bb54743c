"""The offline side of "streamed equals offline": `transformers` on the same dequantised weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from headstart.engine.checkpoints.gguf import GgufFile
from tests.engine.models.twins import in_double

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def reference_model(file: GgufFile) -> Any:
    """Llama or Qwen2 in fp32, weights dequantised by the `gguf` package."""
    arch = file.metadata["general.architecture"]
    sizes = {key.removeprefix(f"{arch}."): value for key, value in file.metadata.items()}
    config_class, model_class = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    }[arch]
    config = config_class(
        vocab_size=len(file.metadata["tokenizer.ggml.tokens"]),
        hidden_size=sizes["embedding_length"],
        intermediate_size=sizes["feed_forward_length"],
        num_hidden_layers=sizes["block_count"],
        num_attention_heads=sizes["attention.head_count"],
        num_key_value_heads=sizes["attention.head_count_kv"],
        max_position_embeddings=sizes["context_length"],
        rms_norm_eps=sizes["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": sizes["rope.freq_base"]},
        tie_word_embeddings="output.weight" not in file.tensors,
        attn_implementation="eager",
    )
    with torch.device("meta"):
        model = model_class(config)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, tensor in file.tensors.items():
        values = gguf.dequantize(tensor.raw, gguf.GGMLQuantizationType[tensor.kind])
        ours = _OTHER_NAMES.get(name)
        if ours is None:
            _, layer, part, kind = name.split(".")
            ours = f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"
            if arch == "llama" and part in heads:
                values = _halves(values, heads[part])
        one_dimensional = name.endswith(("norm.weight", ".bias"))
        state[ours] = torch.tensor(values.reshape(-1) if one_dimensional else values)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.to_empty(device="cpu")
    model.load_state_dict(state, strict=True)
    # Not in the state dict, so `to_empty` left it unset.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.float().eval()


class Offline:
    """The reference in fp32, and the same in fp64: what fp32 costs is their difference."""

    def __init__(self, file: GgufFile) -> None:
        self.family = {"llama": "llama", "qwen2": "qwen2"}[file.metadata["general.architecture"]]
        self.fp32 = reference_model(file)
        self.fp64 = copy.deepcopy(self.fp32).double()

    def logits(self, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        """[vocab_size] behind the last of `tokens`, from one forward each: fp32, fp64."""
        plain = offline_logits(self.fp32, tokens)[-1]
        with in_double(self.family):
            return plain, offline_logits(self.fp64, tokens)[-1]


def _halves(values: Any, heads: int) -> Any:
    """Undo llama.cpp's pairing of rotated rows: neighbours become halves of a head."""
    pairs = values.reshape(heads, -1, 2, values.shape[-1])
    return np.concatenate([pairs[:, :, 0], pairs[:, :, 1]], axis=1).reshape(values.shape)


def offline_logits(model: Any, tokens: Sequence[int]) -> Tensor:
    """[len(tokens), vocab_size] in the model's type, from one forward over everything."""
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([list(tokens)])).logits[0]
    return logits
