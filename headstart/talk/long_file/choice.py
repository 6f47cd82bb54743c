"""Which pictures of a part are shown to the model. No I/O.

    candidates (up to 4 a second, each with a thumbnail) ─▶ Chooser.choose(part, at_most) ─▶ some

`Sampled` applies a policy of `gateway.video.sampling` as if the part were live, then thins what is
left: "uniform" as for a camera, "changed" as the camera's "motion". `ByMotion` shares a part's
pictures among its seconds by how much moves in them, at least one every 2 s (0.5 a second) and at
most 4 a second. A still part takes few, and what it leaves over is kept for the parts behind it
(`Allowance`).

"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.video.sampling import (
    Every,
    FrameSampler,
    FrameVerdict,
    Motion,
    SampledFrame,
    Thumbnail,
    Uniform,
    difference,
)

CANDIDATES_PER_S = 4.0
FPS_MIN = 0.5
"""Of a part in which something moves."""
PICTURES = 12
"""Of a part, on average."""
SAME = 0.012
"""Pictures that differ by less (mean difference of luma, of 1) show the same."""


@dataclass(frozen=True)
class Candidate:
    """A picture that may be shown. `at_s`: of the recording."""

    at_s: float
    thumbnail: Thumbnail


class Chooser(Protocol):
    """Chooses among a part's candidates, which are in order of time; returns their indices, in
    order and at most `at_most`. Of a part with candidates it chooses one at least."""

    name: str

    def choose(self, candidates: Sequence[Candidate], at_most: int) -> list[int]: ...


class ByMotion:
    """See the module's docstring."""

    name = "motion"

    def choose(self, candidates: Sequence[Candidate], at_most: int) -> list[int]:
        if not candidates or at_most < 1:
            return []
        news = [1.0] + [
            difference(one.thumbnail, other.thumbnail) for one, other in pairwise(candidates)
        ]
        cell_s = 1 / FPS_MIN
        first_s = candidates[0].at_s
        cells: dict[int, list[int]] = {}
        for index, candidate in enumerate(candidates):
            cells.setdefault(int((candidate.at_s - first_s) / cell_s), []).append(index)
        # Of each two seconds the picture that shows most that is new.
        chosen = [max(inside, key=lambda i: (news[i], -i)) for inside in cells.values()]
        kept = thin(candidates, chosen, at_most)
        left = sorted(set(range(len(candidates))) - set(kept), key=lambda i: (-news[i], i))
        for index in left:
            if len(kept) >= at_most or news[index] < SAME:
                break
            at = bisect(kept, index)
            if all(
                _news(candidates, near, index) >= SAME for near in kept[max(0, at - 1) : at + 1]
            ):
                kept.insert(at, index)
        return kept


class Sampled:
    """A live policy, made anew for each part by `make`, applied to a part."""

    def __init__(self, name: str, make: Callable[[], FrameSampler]) -> None:
        self.name = name
        self._make = make

    def choose(self, candidates: Sequence[Candidate], at_most: int) -> list[int]:
        sampler, chosen = self._make(), []
        for index, candidate in enumerate(candidates):
            frame = SampledFrame(candidate.at_s * 1000, candidate.thumbnail)
            if sampler.judge(frame) is FrameVerdict.KEEP:
                sampler.keep(frame)
                chosen.append(index)
        return thin(candidates, chosen, at_most, drop_same=False)


def choosers() -> dict[str, Chooser]:
    """By the name that `--sampler` takes."""
    live = Sampled("changed", lambda: Every([Uniform(CANDIDATES_PER_S), Motion(0.02, 10_000)]))
    return {c.name: c for c in (ByMotion(), Sampled("uniform", lambda: Uniform(FPS_MIN)), live)}


def thin(
    candidates: Sequence[Candidate], chosen: Sequence[int], at_most: int, *, drop_same: bool = True
) -> list[int]:
    """`chosen` without pictures that look like the one before, and without the least different
    ones until `at_most` are left. The first is kept."""
    kept = list(chosen)
    if drop_same:
        kept = kept[:1]
        for index in chosen[1:]:
            if _news(candidates, kept[-1], index) >= SAME:
                kept.append(index)
    while len(kept) > max(1, at_most):
        # Spread in time too: what is close to its neighbours in both goes first.
        def worth(place: int) -> float:
            before = kept[place - 1]
            after = kept[min(place + 1, len(kept) - 1)]
            apart_s = candidates[after].at_s - candidates[before].at_s
            return _news(candidates, before, kept[place]) * max(apart_s, 0.1)

        del kept[min(range(1, len(kept)), key=worth)]
    return kept


def _news(candidates: Sequence[Candidate], before: int, index: int) -> float:
    return difference(candidates[before].thumbnail, candidates[index].thumbnail)


class Allowance:
    """How many pictures the next part may have: `pictures`, and what earlier ones left over, up to
    as many again. A part that moves much may so have twice as many, at most `CANDIDATES_PER_S`, and
    as many as one event may hold."""

    def __init__(self, pictures: int = PICTURES) -> None:
        self._pictures = pictures
        self._saved = 0

    def of(self, lasts_s: float) -> int:
        most = min(max(1, int(lasts_s * CANDIDATES_PER_S)), MAX_EVENT_PICTURES)
        return min(self._pictures + self._saved, most)

    def took(self, count: int) -> None:
        self._saved = min(max(0, self._saved + self._pictures - count), self._pictures)
