"""After a final pass speech goes on: what it makes of the words that were committed before it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from headstart.engine.asr.hypothesis import Word, plain


def adopted(
    committed: Sequence[Word], final: Sequence[Word], marks: Sequence[int] = ()
) -> tuple[tuple[Word, ...], tuple[int, ...]]:
    """The words of `final` up to the last one that `committed` has as well, and where the `marks`
    lie in them: numbers of words of `committed`.

    What the final pass has otherwise is taken from it; words behind the last common one are open
    again, for they were committed on less sound than it heard.
    """
    blocks = SequenceMatcher(
        None, [plain(word) for word in committed], [plain(word) for word in final], autojunk=False
    ).get_matching_blocks()
    common = [block for block in blocks if block.size]
    count = common[-1].b + common[-1].size if common else 0
    moved = []
    for mark in marks:
        at = 0
        for block in common:
            if block.a < mark:
                at = block.b + min(mark - block.a, block.size)
        moved.append(at)
    return tuple(final[:count]), tuple(moved)
