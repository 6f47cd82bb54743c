"""Which pictures of a part are shown to the model: by a policy, within a budget. No I/O.

    pictures (up to 4 a second) ─▶ RunningBudget: how many ─▶ policy: which ─▶ those that differ

The policies are those of `gateway.video.file_sampling`. Parts share the budget by how much moves in
them (0.5 to 4 pictures a second, where it allows that); what a still part leaves over is kept for
the parts behind it.

"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.video import file_sampling
from headstart.gateway.video.file_sampling import FilePolicy, RunningBudget
from headstart.talk.long_file.likeness import look_alike
from headstart.talk.long_file.parts import PART_S
from headstart.talk.long_file.video_reader import Picture

PICTURES = 12
"""Of a part, on average."""
DEFAULT_POLICY: FilePolicy = "change"


class FrameChooser:
    """For the parts of one recording, in order. `pictures`: of a part of `part_s`, on average; a
    shorter one counts as one of that length."""

    def __init__(
        self,
        policy: FilePolicy = DEFAULT_POLICY,
        pictures: int = PICTURES,
        part_s: float = PART_S,
    ) -> None:
        self._policy, self._part_s = policy, part_s
        self._budget = RunningBudget(pictures / part_s)

    def choose(self, pictures: Sequence[Picture]) -> list[Picture]:
        """Some of a part's pictures, in order: at least one if there is one, no two neighbours that
        look alike, no more than one event may hold."""
        candidates = [picture.candidate for picture in pictures]
        frames = min(self._budget.grant(candidates, self._part_s), MAX_EVENT_PICTURES)
        chosen: list[Picture] = []
        for index in file_sampling.choose(self._policy, candidates, frames).indexes:
            if not chosen or not look_alike(chosen[-1].candidate, candidates[index]):
                chosen.append(pictures[index])
        self._budget.spend(len(chosen))
        return chosen
