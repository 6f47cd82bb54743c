"""Marks: good until the stream is cut below them. Streams' own tests run them at random."""

from __future__ import annotations

import pytest

from engine.errors import StaleMark
from engine.marks import Cuts


def test_a_cut_behind_a_mark_leaves_it_good() -> None:
    """Only what stood before the mark matters."""
    cuts = Cuts()
    mark = cuts.mark(4)
    cuts.note(4)
    cuts.note(9)
    cuts.require_good(mark)


def test_the_deepest_later_cut_spoils_a_mark() -> None:
    """A later, shallower cut does not mend it, and cuts before the mark do not count."""
    cuts = Cuts()
    cuts.note(1)
    mark = cuts.mark(6)
    cuts.note(3)
    cuts.note(8)
    with pytest.raises(StaleMark) as caught:
        cuts.require_good(mark)
    assert (caught.value.length, caught.value.cut_to) == (6, 3)
