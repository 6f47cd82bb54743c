"""Thinning: which words of past turns are evicted by attention, one by one.

Of each message the tokens that get the most attention stay, and all of its pictures' tokens. The
system prompt, system items, function calls and the newest turn stay whole. A pure function from a
rendered conversation to the ranges of tokens to evict.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headstart.engine.api import Role
from headstart.engine.chat.accounting import Modality
from headstart.engine.chat.context_window import Range, ranges
from headstart.engine.chat.render import Entry, RenderedPrompt

# A shorter message stays whole: there is little to gain, and one word of four may be "not".
SHORTEST_TOKENS = 5
# A token counts as much as the most noticed one within so many, so that words stay in one piece.
_AROUND = 1


def thinned(
    rendered: RenderedPrompt,
    entries: Sequence[Entry],
    mass: npt.NDArray[np.float32],
    share: float,
) -> list[Range]:
    """The ranges of `rendered` to evict, ascending, so that `share` of each message's words stay.

    `entries`: the entries it was rendered from. `mass`: attention to its first tokens, those whose
    K/V are known; messages beyond them stay whole, and so do those that were thinned before.
    """
    dropped = np.zeros(len(rendered.ids), dtype=np.bool_)
    noticed = mass.copy()
    for by in range(1, _AROUND + 1):
        noticed[by:] = np.maximum(noticed[by:], mass[:-by])
        noticed[:-by] = np.maximum(noticed[:-by], mass[by:])
    past = _past(entries)
    for entry, item in zip(entries[:past], rendered.items[:past], strict=True):
        is_call = entry.continues or entry.role is Role.SYSTEM
        if is_call or entry.whole is not None or item.end > len(mass):
            continue
        words = np.concatenate(
            [np.arange(0)]
            + [
                np.arange(start, end)
                for segment, (start, end) in zip(entry.segments, item.segments, strict=True)
                if segment.modality is not Modality.IMAGE
            ]
        )
        count = int(len(words) * (1 - share) + 1e-9)
        if len(words) >= SHORTEST_TOKENS and count:
            order = np.argsort(noticed[words], kind="stable")
            dropped[words[order[:count]]] = True
    return ranges(dropped)


def _past(entries: Sequence[Entry]) -> int:
    """Number of entries before the newest turn."""
    at = len(entries)
    for role in (Role.ASSISTANT, Role.USER):
        while at and (entries[at - 1].role is role or entries[at - 1].role is Role.SYSTEM):
            at -= 1
    return at
