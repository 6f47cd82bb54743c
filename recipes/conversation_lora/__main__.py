"""Fits the adapter, from the last checkpoint if there is one.

python -m headstart.recipes.conversation_lora --help
"""

from __future__ import annotations

import json
import random
import time
import zlib
from pathlib import Path
from typing import Annotated

import torch
import typer

from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.weights import ensure
from headstart.recipes.conversation_lora import dialogues
from headstart.recipes.conversation_lora.fit import Fit, Plan, load_base, save
from headstart.recipes.conversation_lora.packing import packs
from headstart.recipes.conversation_lora.tokens import Example, example, system_prompts

CHECKPOINT_EVERY = 10
HELD_PERCENT = 4
PLAN = Plan()


def main(
    work: Annotated[Path, typer.Option(help="folder for checkpoints and the result")],
    data: Annotated[list[Path], typer.Option(help="a folder of *.jsonl; may be repeated")],
    epochs: int = PLAN.epochs,
    rate: float = PLAN.rate,
    threads: int = 2,
    start: Annotated[Path | None, typer.Option(help="an adapter to start from")] = None,
    replay: Annotated[int, typer.Option(help="dialogues of AGAIN to add to DATA")] = 0,
    again: Annotated[list[Path] | None, typer.Option(help="data folders of earlier fits")] = None,
) -> None:
    """Fit an adapter and write WORK/adapter_model.safetensors and adapter_config.json, as PEFT."""
    torch.set_num_threads(threads)
    work.mkdir(parents=True, exist_ok=True)
    plan = Plan(epochs=epochs, rate=rate)
    gguf = ensure("qwen2.5-coder-0.5b")
    file = GgufFile(gguf)
    tokenizer = Tokenizer.from_gguf(file)
    chat = ChatFormat.from_gguf(file, tokenizer)
    learnt: list[Example] = []
    held: list[Example] = []
    earlier = dialogues.load(*again) if again else []
    if replay > len(earlier):
        raise typer.BadParameter(f"--replay {replay}: --again has {len(earlier)} dialogues")
    replayed = random.Random(plan.seed).sample(earlier, replay)
    for dialogue in [*dialogues.load(*data), *replayed]:
        kept_back = zlib.crc32(str(dialogue.turns[0].said).encode()) % 100 < HELD_PERCENT
        (held if kept_back else learnt).append(example(chat, tokenizer, dialogue))
    prompts = system_prompts(chat)
    fit = Fit(load_base(gguf, plan), prompts, [*learnt, *held], plan)
    fit.examples = learnt
    if start is not None:
        fit.go_on_from(start)
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        fit.restore(torch.load(checkpoint, weights_only=True))
    steps = fit.steps()
    print(f"{len(learnt)} dialogues, {len(held)} held out, {len(steps)} steps", flush=True)
    while fit.step < len(steps):
        began = time.monotonic()
        loss = fit.train_step(steps[fit.step], len(steps))
        took_s = time.monotonic() - began
        print(f"step {fit.step}/{len(steps)}: loss {loss:.3f}, {took_s:.0f} s", flush=True)
        if fit.step % CHECKPOINT_EVERY == 0 or fit.step == len(steps):
            torch.save(fit.state(), work / "next.pt")
            (work / "next.pt").rename(checkpoint)
            save(fit.model, work)
    judge = Fit(fit.model, prompts, held, plan)
    with torch.no_grad():
        losses = [float(judge.loss(pack)) for pack in packs(held, plan.most_tokens, 0)]
        with fit.model.disable_adapter():
            before = [float(judge.loss(pack)) for pack in packs(held, plan.most_tokens, 0)]
    result = {"held_out_loss": sum(losses) / len(losses), "before": sum(before) / len(before)}
    print(json.dumps({"steps": len(steps), "dialogues": len(learnt), **result}))


if __name__ == "__main__":
    typer.run(main)
