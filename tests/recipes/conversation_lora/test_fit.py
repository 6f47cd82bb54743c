"""The fit's shortcuts change nothing: packing, kept lower layers, and going on after a cut."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.adapter import CONFIG, TENSORS, Adapter
from headstart.recipes.conversation_lora.fit import TARGETS, Fit, Plan, load_base, save
from headstart.recipes.conversation_lora.packing import Pack
from headstart.recipes.conversation_lora.tokens import Example, Prompt
from tests.engine.tiny_gguf import QWEN2, write_tiny_gguf

PLAN = Plan(first_layer=1, rank=2, alpha=4, rate=1e-2, epochs=2, most_tokens=20, warm_up_steps=2)
PROMPTS = ((1, 2, 3, 4), (1, 2))
EXAMPLES = [
    Example(Prompt.BLIND, (5, 6, 7, 8), (0.0, 0.1, 1.0, 1.0)),
    Example(Prompt.BLIND, (9, 10, 200), (1.0, 1.0, 0.0)),
    Example(Prompt.SEES, (11, 12, 13, 14, 15), (0.0, 0.0, 1.0, 1.0, 1.0)),
]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("fit") / "tiny.gguf", QWEN2)


@pytest.fixture
def fit(gguf: Path) -> Fit:
    return Fit(load_base(gguf, PLAN), PROMPTS, EXAMPLES, PLAN)


def _offline(fit: Fit, example: Example) -> tuple[torch.Tensor, float]:
    """Sum of weighted losses by the whole model on the example alone, and the weights' sum."""
    prompt = fit.prompts[example.prompt]
    ids = torch.tensor([[*prompt, *example.ids]])
    with torch.no_grad():
        logits = fit.model(ids).logits[0].log_softmax(-1)
    total = torch.zeros(())
    for i, (token, weight) in enumerate(zip(example.ids, example.weights, strict=True)):
        total -= weight * logits[len(prompt) + i - 1, token]
    return total, sum(example.weights)


def test_a_packs_loss_is_that_of_its_examples_alone(fit: Fit) -> None:
    """Two dialogues behind one prompt, through kept lower layers, twice: the mean of what the
    model says of each by itself, over its whole vocabulary."""
    parts = [_offline(fit, EXAMPLES[i]) for i in (0, 1)]
    wanted = sum(float(total) for total, _ in parts) / sum(weight for _, weight in parts)
    for _ in range(2):
        assert float(fit.loss(Pack(Prompt.BLIND, (0, 1)))) == pytest.approx(wanted, abs=1e-4)


def test_only_the_upper_layers_are_fitted(fit: Fit) -> None:
    """The loss falls, and no weight below `first_layer` has changed or has a LoRA."""
    names = [name for name, p in fit.model.named_parameters() if p.requires_grad]
    assert names
    assert not any(".layers.0." in name for name in names)
    pack = Pack(Prompt.BLIND, (0, 1))
    losses = [fit.train_step(pack, 20) for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]


def test_what_is_saved_is_what_the_engine_reads(gguf: Path, fit: Fit, tmp_path: Path) -> None:
    """A folder with PEFT's two files, half precision, that names no path of this machine; the
    engine finds every fitted layer in it."""
    save(fit.model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG, TENSORS]
    assert str(gguf.parent) not in (tmp_path / CONFIG).read_text()
    adapter = Adapter(tmp_path, DecoderSpec.from_gguf(GgufFile(gguf)))
    assert len(adapter) == len(TARGETS) * (QWEN2.layers - PLAN.first_layer)


def test_a_fit_that_was_cut_off_goes_on_as_if_it_had_not_been(gguf: Path, fit: Fit) -> None:
    """Two steps, a checkpoint, two more in another process: the loss of four in one go."""
    steps = fit.steps()
    assert len(steps) >= 4
    kept = None
    for pack in steps[:4]:
        if fit.step == 2:
            kept = copy.deepcopy(fit.state())
        whole = fit.train_step(pack, len(steps))
    assert kept is not None
    again = Fit(load_base(gguf, PLAN), PROMPTS, EXAMPLES, PLAN)
    again.restore(kept)
    for pack in steps[2:4]:
        resumed = again.train_step(pack, len(steps))
    assert resumed == pytest.approx(whole, abs=1e-6)


def test_a_fit_goes_on_from_what_was_saved(gguf: Path, fit: Fit, tmp_path: Path) -> None:
    """A second stage begins where the first one's weights (in half precision) left off."""
    pack = Pack(Prompt.BLIND, (0, 1))
    for _ in range(10):
        fit.train_step(pack, 20)
    save(fit.model, tmp_path)
    again = Fit(load_base(gguf, PLAN), PROMPTS, EXAMPLES, PLAN)
    fresh = float(again.loss(pack).detach())
    again.go_on_from(tmp_path)
    loss = float(again.loss(pack).detach())
    assert loss == pytest.approx(float(fit.loss(pack).detach()), abs=0.01)
    assert abs(loss - fresh) > 0.1
