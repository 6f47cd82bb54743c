"""Which words of past turns are evicted."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from headstart.engine.api import Role
from headstart.engine.chat.render import Entry, Modality, Segment, Separator, render
from headstart.engine.chat.thinning import SHORTEST_TOKENS, thinned
from tests.engine.fakes import FakeChat

SYSTEM = (7, 7, 7)


def entry(name: str, role: Role, *segments: tuple[Modality, int]) -> Entry:
    return Entry(
        name, role, tuple(Segment(kind, tuple(range(100, 100 + n))) for kind, n in segments)
    )


def conversation() -> list[Entry]:
    text, image = Modality.TEXT, Modality.IMAGE
    return [
        entry("u1", Role.USER, (text, 10), (image, 8), (text, 10)),
        entry("a1", Role.ASSISTANT, (Modality.GENERATED, 20)),
        entry("s1", Role.SYSTEM, (text, 20)),
        entry("u2", Role.USER, (text, SHORTEST_TOKENS - 1)),
        replace(entry("a2", Role.ASSISTANT, (Modality.GENERATED, 20)), continues=True),
        entry("u3", Role.USER, (text, 20)),
        entry("a3", Role.ASSISTANT, (Modality.GENERATED, 20)),
    ]


def cut(entries: list[Entry], mass: npt.NDArray[np.float32], share: float) -> dict[str, list[int]]:
    """The places of evicted tokens in each entry; nothing else is evicted."""
    rendered = render(FakeChat(), Separator((0,)), SYSTEM, entries)
    gone = {i for start, end in thinned(rendered, entries, mass, share) for i in range(start, end)}
    found = {}
    for one, item in zip(entries, rendered.items, strict=True):
        inside = [i - item.content for i in sorted(gone) if item.content <= i < item.end]
        gone -= {item.content + i for i in inside}
        if inside:
            found[one.item_id] = inside
    assert not gone
    return found


def tokens(entries: list[Entry]) -> int:
    return len(render(FakeChat(), Separator((0,)), SYSTEM, entries).ids)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_noticed_stays(seed: int) -> None:
    """70 % of the words of each past message; pictures, calls, system items, short messages and
    the newest turn stay whole."""
    chance = random.Random(seed)
    entries = conversation()
    mass = np.array([chance.random() for _ in range(tokens(entries))], dtype=np.float32)
    gone = cut(entries, mass, 0.7)
    assert {name: len(places) for name, places in gone.items()} == {"u1": 6, "a1": 6}
    assert not set(gone["u1"]) & set(range(10, 18))
    rendered = render(FakeChat(), Separator((0,)), SYSTEM, entries)
    at = rendered.items[1].content
    around = [max(mass[at + i - 1 : at + i + 2]) for i in range(20)]
    kept = [around[i] for i in range(20) if i not in gone["a1"]]
    assert max(around[i] for i in gone["a1"]) <= min(kept)


def test_only_messages_whose_attention_is_known() -> None:
    """What was not in the cache, or was thinned before, stays."""
    entries = conversation()
    rendered = render(FakeChat(), Separator((0,)), SYSTEM, entries)
    mass = np.ones(rendered.items[1].end - 1, dtype=np.float32)
    assert set(cut(entries, mass, 0.5)) == {"u1"}
    entries[0] = replace(entries[0], whole=entries[0].segments)
    assert not cut(entries, mass, 0.5)


def test_one_turn_is_the_newest() -> None:
    """With or without its answer."""
    entries = conversation()[:2]
    assert not cut(entries, np.ones(tokens(entries), dtype=np.float32), 0.5)
    assert not cut(entries[:1], np.ones(tokens(entries[:1]), dtype=np.float32), 0.5)
