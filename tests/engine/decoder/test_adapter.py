"""A LoRA on a packed decoder computes what PEFT computes, and nothing else is taken for one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.adapter import CONFIG, TENSORS, Adapter, chosen_adapter
from headstart.engine.errors import BadWeights
from headstart.engine.process.load import load_model
from headstart.kernels.qlinear import dequantize, pack
from tests.engine.harness import logits_at_once
from tests.engine.reference_model import offline_logits, reference_model
from tests.engine.tiny_gguf import LLAMA, QWEN2, TinyConfig, write_tiny_gguf

TOKENS = [5, 40, 200, 7, 31]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIGS = {"qwen2": QWEN2, "llama": LLAMA}


class Case:
    """A tiny GGUF, and PEFT's model over the same weights with a random LoRA in two layers."""

    def __init__(self, folder: Path, config: TinyConfig, **settings: Any) -> None:
        torch.manual_seed(1)
        self.gguf = write_tiny_gguf(folder / "tiny.gguf", config)
        self.folder = folder / "adapter"
        lora = LoraConfig(
            r=4, lora_alpha=8, target_modules=TARGETS, layers_to_transform=[1, 2], **settings
        )
        self.model = get_peft_model(reference_model(GgufFile(self.gguf)), lora)
        for name, parameter in self.model.named_parameters():
            if "lora_B" in name:  # zero at first: no delta
                torch.nn.init.normal_(parameter, std=0.05)
        self.model.save_pretrained(str(self.folder))

    def logits(self, adapter: Path | None, backend: str) -> Tensor:
        config = EngineConfig(backend=backend, kv_pool_bytes=1 << 20, threads=1)
        model = load_model(self.gguf, config, adapter=adapter)
        return logits_at_once(model, TOKENS)


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("adapter"), CONFIGS[request.param])


@pytest.mark.parametrize(("backend", "share"), [("reference", 0.1), ("native", 0.2)])
def test_an_adapted_decoder_computes_what_peft_computes(
    case: Case, backend: str, share: float
) -> None:
    """The LoRA moves the logits; ours then differ from PEFT's by a small share of that move: the
    rounding of weights to 8 bits and, with native kernels, of activations, as without a LoRA."""
    wanted = offline_logits(case.model, TOKENS)[-1]
    with case.model.disable_adapter():
        before = offline_logits(case.model, TOKENS)[-1]
    moved = (wanted - before).norm()
    assert moved > 0.5
    assert (case.logits(None, backend) - before).norm() < share * moved
    assert (case.logits(case.folder, backend) - wanted).norm() < share * moved


def test_each_weight_is_the_merged_one_to_half_a_step(case: Case) -> None:
    """Every adapted tensor is PEFT's own merge, rounded once to Q8_0 (half a step, and what the
    step's own rounding to fp16 adds); all others are left alone."""
    file = GgufFile(case.gguf)
    spec = DecoderSpec.from_gguf(file)
    adapter = Adapter(case.folder, spec)
    assert len(adapter) == 2 * len(TARGETS)
    merged = copy.deepcopy(case.model).merge_and_unload().state_dict()
    names = {"attn_output": "self_attn.o_proj", "ffn_down": "mlp.down_proj"}
    for part, module in names.items():
        tensor = file.tensors[f"blk.2.{part}.weight"]
        raw = adapter.adapted(tensor, None)
        assert raw is not None
        got = dequantize(pack("Q8_0", raw, tensor.rows, tensor.cols))
        wanted = merged[f"model.layers.2.{module}.weight"]
        groups = (got - wanted).view(-1, 32)
        step = wanted.view(-1, 32).abs().amax(1, keepdim=True) / 127
        assert (groups.abs() <= step * 0.6).all()
    assert adapter.adapted(file.tensors["blk.0.attn_q.weight"], None) is None


def _tensors(change: Callable[[dict[str, Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / TENSORS)
        change(tensors)
        save_file(tensors, folder / TENSORS)

    return apply


def _config(**fields: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / CONFIG
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return apply


Q_A = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda folder: (folder / CONFIG).unlink(), f"no {CONFIG}"),
    "no tensors": (lambda folder: (folder / TENSORS).unlink(), f"no {TENSORS}"),
    "dora": (_config(use_dora=True), "use_dora"),
    "prefix tuning": (_config(peft_type="PREFIX_TUNING"), "peft_type"),
    "biases": (_config(bias="all"), "bias"),
    "rank": (_config(r=0), "at least 1"),
    "alpha": (_config(lora_alpha=None), "lora_alpha"),
    "shape": (_tensors(lambda t: t.update({Q_A: torch.zeros(4, 63)})), "shape"),
    "half": (_tensors(lambda t: t.__delitem__(Q_A)), "lora_A"),
    "nan": (_tensors(lambda t: t.update({Q_A: t[Q_A] * float("nan")})), "finite"),
    "another layer": (
        _tensors(lambda t: t.update({Q_A.replace(".1.", ".7."): t[Q_A].clone()})),
        "layers 0 to 2",
    ),
    "lora biases": (
        _tensors(lambda t: t.update({Q_A.replace("A.weight", "B.bias"): torch.zeros(64)})),
        "lora_B.bias",
    ),
    "another module": (
        _tensors(lambda t: t.update({"base_model.model.lm_head.lora_A.weight": t[Q_A].clone()})),
        "lm_head",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_adapter_is_named(tmp_path: Path, fault: str) -> None:
    """A file that is missing, a kind of adapter that we do not compute, a tensor that does not fit:
    each is refused before anything is loaded, and the error says which it was."""
    case = Case(tmp_path, QWEN2)
    break_it, named = FAULTS[fault]
    break_it(case.folder)
    with pytest.raises(BadWeights, match=named):
        Adapter(case.folder, DecoderSpec.from_gguf(GgufFile(case.gguf)))


def test_rank_stabilised_scaling_is_pefts(tmp_path: Path) -> None:
    """`use_rslora` divides by the root of the rank."""
    case = Case(tmp_path, QWEN2, use_rslora=True)
    wanted = offline_logits(case.model, TOKENS)[-1]
    right = case.logits(case.folder, "reference")
    _config(use_rslora=False)(case.folder)
    wrong = case.logits(case.folder, "reference")
    assert (right - wanted).norm() < 0.2 * (wrong - wanted).norm()


def test_the_setting_names_the_models_own_none_or_a_folder(tmp_path: Path) -> None:
    """auto, off, or a path."""
    assert chosen_adapter("auto", tmp_path) == tmp_path
    assert chosen_adapter("auto", None) is None
    assert chosen_adapter("off", tmp_path) is None
    assert chosen_adapter("some/where", tmp_path) == Path("some/where")
