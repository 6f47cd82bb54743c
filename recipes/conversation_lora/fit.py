"""The fit: LoRA on the upper half of the layers of the weights that `small` runs on.

The lower layers are frozen, so their output for each dialogue is computed once and cached. The loss
covers the few thousand tokens that occur and the most common others, not all 152,000. So an epoch
over a thousand dialogues takes half an hour on one core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from headstart.recipes.conversation_lora.packing import Pack, mask, packs, positions
from headstart.recipes.conversation_lora.tokens import Example, Prompt

BASE = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")
COMMON_TOKENS = 16_384
"""Byte-pair ids are in the order of their merges, so the first ones are the most common."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`first_layer`: the lowest adapted layer. `most_tokens`: of a step, without padding."""

    first_layer: int = 12
    rank: int = 16
    alpha: int = 32
    rate: float = 4e-4
    epochs: int = 1
    most_tokens: int = 600
    warm_up_steps: int = 10
    seed: int = 1


def load_base(gguf: Path, plan: Plan) -> Any:
    """The engine's weights in fp32, dequantised by `transformers`, with a new LoRA."""
    torch.manual_seed(plan.seed)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="sdpa"
    )
    layers = list(range(plan.first_layer, model.config.num_hidden_layers))
    config = LoraConfig(
        r=plan.rank,
        lora_alpha=plan.alpha,
        target_modules=list(TARGETS),
        layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def save(model: Any, folder: Path) -> None:
    """Write the LoRA as `folder`'s adapter_config.json and adapter_model.safetensors, in fp16. The
    config names the published base model, not a local path."""
    model.peft_config["default"].base_model_name_or_path = BASE
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # PEFT's empty template of a model card
    path = folder / "adapter_model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path)


class Fit:
    """One fit over `examples`; `prompts` are the system prompts' tokens, by `Prompt`."""

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        examples: Sequence[Example],
        plan: Plan,
    ) -> None:
        self.model, self.prompts, self.examples, self.plan = model, prompts, examples, plan
        self._body = model.base_model.model.model
        used = {token for example in examples for token in example.ids}
        head = model.base_model.model.lm_head.weight.detach()
        kept = sorted(used | set(range(min(COMMON_TOKENS, len(head)))))
        self._head = head[kept].contiguous()
        self._place = {token: place for place, token in enumerate(kept)}
        self._lower: dict[int, Tensor] = {}
        self._prefix: dict[Prompt, Tensor] = {}
        self._weights = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self._weights, lr=plan.rate, weight_decay=0.0)
        self.step = 0

    def steps(self) -> list[Pack]:
        """All steps of all epochs."""
        plan = self.plan
        return [
            pack
            for epoch in range(plan.epochs)
            for pack in packs(self.examples, plan.most_tokens, plan.seed + epoch)
        ]

    def loss(self, pack: Pack) -> Tensor:
        """Weighted mean of the negative log-likelihood, in nats per token."""
        prompt = self.prompts[pack.prompt]
        members = [self.examples[i] for i in pack.members]
        hidden = self._upper(self._middle(pack), len(prompt), [len(m.ids) for m in members])
        rows: list[int] = []
        wanted: list[int] = []
        weights: list[float] = []
        at = len(prompt)
        for member in members:
            for i, (token, weight) in enumerate(zip(member.ids, member.weights, strict=True)):
                if weight:
                    # An example's first token is predicted from the prompt's last.
                    rows.append(at + i - 1 if i else len(prompt) - 1)
                    wanted.append(self._place[token])
                    weights.append(weight)
            at += len(member.ids)
        logits = hidden[0, rows] @ self._head.T
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(wanted), reduction="none")
        share = torch.tensor(weights)
        return (losses * share).sum() / share.sum()

    def train_step(self, pack: Pack, of: int) -> float:
        """One step of the optimiser; returns the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate * self._schedule(of)
        loss = self.loss(pack)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        """The state for `restore`."""
        return {
            "lora": get_peft_model_state_dict(self.model),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }

    def restore(self, state: dict[str, Any]) -> None:
        set_peft_model_state_dict(self.model, state["lora"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def go_on_from(self, folder: Path) -> None:
        """Start from the deltas that `save` wrote to `folder`."""
        tensors = load_file(folder / "adapter_model.safetensors")
        set_peft_model_state_dict(self.model, {n: t.float() for n, t in tensors.items()})

    def _schedule(self, of: int) -> float:
        """Linear warm-up, then a cosine down to a tenth."""
        if self.step < self.plan.warm_up_steps:
            return (self.step + 1) / self.plan.warm_up_steps
        done = (self.step - self.plan.warm_up_steps) / max(1, of - self.plan.warm_up_steps)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    def _middle(self, pack: Pack) -> Tensor:
        """Output of the lower layers for prompt and pack, fp32 [1, n, hidden]."""
        missing = tuple(i for i in pack.members if i not in self._lower)
        if missing or pack.prompt not in self._prefix:
            prompt = self.prompts[pack.prompt]
            lengths = [len(self.examples[i].ids) for i in missing]
            tokens = [*prompt, *(t for i in missing for t in self.examples[i].ids)]
            with torch.no_grad():
                x = self._body.embed_tokens(torch.tensor([tokens]))
                x = self._run(x, len(prompt), lengths, range(self.plan.first_layer))
            parts = torch.split(x[0], [len(prompt), *lengths])
            self._prefix[pack.prompt] = parts[0]
            self._lower.update(zip(missing, parts[1:], strict=True))
        parts = (self._prefix[pack.prompt], *(self._lower[i] for i in pack.members))
        return torch.cat(parts)[None]

    def _upper(self, x: Tensor, prefix: int, lengths: Sequence[int]) -> Tensor:
        layers = range(self.plan.first_layer, len(self._body.layers))
        hidden: Tensor = self._body.norm(self._run(x, prefix, lengths, layers))
        return hidden

    def _run(self, x: Tensor, prefix: int, lengths: Sequence[int], layers: range) -> Tensor:
        rotary = self._body.rotary_emb(x, positions(prefix, lengths))
        look = mask(prefix, lengths)
        for index in layers:
            out = self._body.layers[index](x, attention_mask=look, position_embeddings=rotary)
            x = out[0] if isinstance(out, tuple) else out
        return x
