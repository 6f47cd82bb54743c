"""Writes dialogues about facts that the base model knows already.

    python -m headstart.recipes.conversation_lora.known OUT

A small model that is taught facts it does not know learns to invent others (Gekhman et al., "Does
Fine-Tuning LLMs on New Knowledge Encourage Hallucinations?", 2024; here: "Juliet wrote Romeo and
Juliet"). So the base model is asked, and its correct answers are kept in its own words.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.process.assemble import ModelPaths, assemble
from headstart.engine.weights import resolve_model
from headstart.gateway.default_prompts import BLIND_NOTE, INSTRUCTIONS

FACTS = Path(__file__).parent / "facts.toml"
AT_ONCE = 16
LONGEST_TOKENS = 36
_QUOTED = re.compile(r'"([^"]+?)([.,]?)"')

Ask = Callable[[Sequence[str]], list[str]]
"""Answers to questions, each asked in a session of its own."""


def known(facts: Sequence[tuple[str, str]], ask: Ask) -> Iterator[tuple[str, str]]:
    """(question, answer) for each answer that contains one of the fact's "|" parts as a word."""
    for start in range(0, len(facts), AT_ONCE):
        part = facts[start : start + AT_ONCE]
        for (question, right), answer in zip(part, ask([q for q, _ in part]), strict=True):
            wanted = "|".join(re.escape(one) for one in right.split("|"))
            if re.search(rf"(?<!\w)(?:{wanted})", answer, re.IGNORECASE):
                yield question, spoken(answer)


def spoken(answer: str) -> str:
    """`answer` in spoken form: without quotation marks, ending with a full stop."""
    plain = _QUOTED.sub(r"\1\2", answer.strip())
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."


class Base:
    """`small` without an adapter, asked with the gateway's default prompts, greedily."""

    def __init__(self) -> None:
        self._events: list[api.Event] = []
        paths = ModelPaths.of(resolve_model("small"), "off")
        config = EngineConfig(model="small")
        self._engine, _ = assemble(paths, config, self._events.append, lambda *_: None)

    def __call__(self, questions: Sequence[str]) -> list[str]:
        sampling = api.Sampling(max_tokens=LONGEST_TOKENS, max_sentences=1)
        names = [f"fact-{i}" for i in range(len(questions))]
        for name, question in zip(names, questions, strict=True):
            self._engine.receive(api.Open(name, INSTRUCTIONS, (), BLIND_NOTE))
            item = api.Item("u", api.Role.USER, (api.Text(question),))
            self._engine.receive(api.AddItem(name, item))
            self._engine.receive(api.Respond(name, 1, "a", sampling))
        while self._engine.step():
            pass
        said = {e.session: e.text for e in self._events if isinstance(e, api.Finished)}
        for name in names:
            self._engine.receive(api.Close(name))
        self._engine.step()
        self._events.clear()
        return [said[name] for name in names]


def main(out: Path) -> None:
    """Write OUT, a file of dialogues."""
    facts = [(ask, right) for ask, right in tomllib.loads(FACTS.read_text())["facts"]]
    found = list(known(facts, Base()))
    lines = [json.dumps({"kind": "fact", "camera": "off", "turns": [pair]}) for pair in found]
    out.write_text("\n".join(lines) + "\n")
    print(f"the base knows {len(found)} of {len(facts)}: {out}")


if __name__ == "__main__":
    typer.run(main)
