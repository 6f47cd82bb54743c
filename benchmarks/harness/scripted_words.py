"""Words from a script in place of a recogniser: for measurements of everything else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from headstart.engine.interfaces import Pcm, Recognition

WORDS_PER_SECOND = 2.6  # a relaxed rate of speech
SAMPLE_RATE_HZ = 16_000
SCRIPT = (
    "so today I would like to go over the plan for the garden with you because the tomatoes need "
    "more sun than they get behind the shed and the apple tree has grown over the fence again "
    "what do you think we should plant along the south wall this year"
)


@dataclass(frozen=True, slots=True)
class Said:
    """A `headstart.engine.interfaces.Recognition` without a recogniser: `tentative` words may still
    change."""

    committed: str
    tentative: str
    stages_ms: dict[str, float] = field(default_factory=dict)
    likely: tuple[float, ...] = ()


class ScriptedRecognizer:
    """Recognises the script in a loop, at a speaker's pace."""

    def __init__(self) -> None:
        self._words = itertools.cycle(SCRIPT.split())

    def open(self, stream: object) -> list[str]:
        return []

    def recognize_batch(
        self, utterances: Sequence[list[str]], pcms: Sequence[Pcm]
    ) -> list[Recognition]:
        heard: list[Recognition] = []
        for said, pcm in zip(utterances, pcms, strict=True):
            self._say(said, pcm)
            heard.append(Said(" ".join(said[:-1]), (" " if said[:-1] else "") + said[-1]))
        return heard

    def _say(self, said: list[str], pcm: Pcm) -> None:
        new = max(round(len(pcm) / SAMPLE_RATE_HZ * WORDS_PER_SECOND), 1)
        said.extend(next(self._words) for _ in range(new))

    def finish(self, utterance: list[str], pcm: Pcm | None = None) -> Recognition:
        if pcm is not None:
            self._say(utterance, pcm)
        return Said(" ".join(utterance), "")
