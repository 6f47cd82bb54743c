"""Refusal of streams that do not fit, by counting blocks, without an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from headstart.engine.errors import NoRoom
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.mixed_pool import MixedBlockPool
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import NS_PER_S, AdmissionController, AdmissionRules
from tests.engine.fakes import FakeMemory

SIZE = 4
RULES = AdmissionRules(idle_after_s=5.0, turn_tokens=8)


@dataclass(eq=False)
class Guest:
    name: str
    stream: Stream
    at_rest: bool = False

    def give_up_kv(self) -> None:
        self.stream.recompute(0)
        self.stream.truncate(0)


def room_of(blocks: int, host_blocks: int = 0) -> tuple[AdmissionController, BlockPool]:
    pool, memory = BlockPool(blocks, SIZE), FakeMemory()
    host = HostMemory(memory, pool, host_blocks * SIZE * memory.bytes_per_token)
    return AdmissionController(pool, host, RULES), pool


def guest(name: str, pool: BlockPool, first: int = 0) -> Guest:
    """A cache user whose stream has four tokens."""
    stream = Stream(name, pool, 1000, 100)
    stream.append([first, first + 1, first + 2, first + 3])
    return Guest(name, stream)


def compute(stream: Stream) -> None:
    stream.reserve(stream.pending)
    stream.advance(stream.pending)


def test_an_answer_goes_on_into_what_was_promised_to_others() -> None:
    """An answer's next token is granted while any block is free; a two-token prompt is refused."""
    room, pool = room_of(6)
    guests = [guest("a", pool), guest("b", pool, 10)]
    for one in guests:
        room.admit(one, [], 0)
        compute(one.stream)
    speaker = guests[0]
    speaker.stream.append([*range(20, 28)])
    compute(speaker.stream)
    assert pool.free_blocks == 2  # which b was promised
    speaker.stream.append([28])
    assert room.refuse([(speaker, speaker.stream)], guests, 0) == {}
    speaker.stream.append([29])
    assert list(room.refuse([(speaker, speaker.stream)], guests, 0)) == [speaker.stream]


def test_the_smallest_wants_are_served_first() -> None:
    """The smallest request is granted first, whatever the order."""
    room, pool = room_of(16)
    guests = [guest("large", pool), guest("small", pool, 10)]
    for one in guests:
        room.admit(one, [], 0)
        compute(one.stream)
        one.stream.append([*range(100, 108)])
        compute(one.stream)
    large, small = guests
    large.stream.append([*range(200, 212)])
    small.stream.append([*range(300, 302)])
    pool.allocate(pool.free_blocks - 3)
    wants = [(large, large.stream), (small, small.stream)]
    for order in (wants, wants[::-1]):
        assert list(room.refuse(order, guests, 0)) == [large.stream]


@pytest.mark.parametrize(("host_blocks", "shares"), [(0, False), (8, True)])
def test_what_cannot_be_had_from_the_idle_is_not_promised(host_blocks: int, shares: bool) -> None:
    """Blocks of idle sessions do not count as available if host memory has no room for them or
    another session shares them."""
    room, pool = room_of(16, host_blocks)
    idle = guest("idle", pool)
    room.admit(idle, [], 0)
    compute(idle.stream)
    idle.stream.append([*range(20, 28)])
    compute(idle.stream)
    idle.at_rest = True
    later_ns = 10 * NS_PER_S
    users = [idle]
    if shares:
        users.append(Guest("fork", idle.stream.fork("fork")))
        room.admit(users[1], [], later_ns - 10 * NS_PER_S)
        room.touch("fork", later_ns)
    pool.allocate(pool.free_blocks - 2)  # one less than the newcomer needs
    with pytest.raises(NoRoom):
        room.admit(guest("new", pool, 40), users, later_ns)


def show(one: Guest, parts: int) -> None:
    """So many parts of a picture behind what the stream has."""
    places = [MediaPosition(MediaKind.IMAGE, row=i) for i in range(parts)]
    one.stream.append(one.stream.soft.intern(np.ones((parts, 2), np.float32), places))


def test_pictures_are_counted_in_slabs_of_their_own() -> None:
    """Of seven slabs of two wide or five narrow blocks a picture of 52 parts takes three. One of
    eighty would take four more and is refused; one that fits into the begun slab is not."""
    pool, memory = MixedBlockPool(7, (2, 5), SIZE), FakeMemory()
    room = AdmissionController(pool, HostMemory(memory, pool, 10_000), RULES)
    guests = [guest(name, pool, 10 * i) for i, name in enumerate(("first", "small", "large"))]
    first, small, large = guests
    for one, parts in ((first, 52), (small, 8), (large, 80)):
        room.admit(one, [], 0)
        show(one, parts)
    compute(first.stream)
    assert pool.free_blocks == 14 - 2 * 3 - 1  # thirteen narrow blocks, one wide
    wants = [(large, large.stream), (small, small.stream)]
    assert list(room.refuse(wants, guests, 0)) == [large.stream]
    compute(small.stream)
    assert pool.free_blocks == 14 - 2 * 3 - 2


def test_a_begun_slab_has_room_once() -> None:
    """Three narrow blocks are left and no slab: of two pictures of two blocks one is refused,
    before a part of it is computed."""
    pool, memory = MixedBlockPool(3, (2, 5), SIZE), FakeMemory()
    room = AdmissionController(pool, HostMemory(memory, pool, 10_000), RULES)
    guests = [guest(name, pool, 10 * i) for i, name in enumerate(("first", "second", "third"))]
    first, *others = guests
    for one in guests:
        compute(one.stream)
        room.admit(one, [], 0)
    show(first, 8)
    compute(first.stream)
    assert pool.free_blocks == 1
    for one in others:
        show(one, 8)
    wants = [(one, one.stream) for one in others]
    refused = room.refuse(wants, guests, 0)
    assert list(refused) == [others[1].stream]
    compute(others[0].stream)


def test_promised_words_may_lie_where_no_picture_can() -> None:
    """The block that is promised to another lies in a begun slab of words: a picture may have all
    free slabs, and one block more is refused."""
    pool, memory = MixedBlockPool(4, (2, 5), SIZE), FakeMemory()
    room = AdmissionController(pool, HostMemory(memory, pool, 10_000), RULES)
    guests = [guest("looker", pool), guest("other", pool, 10)]
    looker, other = guests
    for one in guests:
        room.admit(one, [], 0)
    other.stream.append([20, 21, 22, 23])
    for one in guests:
        compute(one.stream)
    assert pool.free_blocks == 1 + 2 * 2
    show(looker, 40)
    assert room.refuse([(looker, looker.stream)], guests, 0) == {}
    show(looker, 4)
    assert list(room.refuse([(looker, looker.stream)], guests, 0)) == [looker.stream]


def test_idle_pictures_make_room_for_words() -> None:
    """An idle session's narrow blocks go to host memory, and their slabs to words. Without slabs
    for them they do not come back, and are to be computed again."""
    pool, memory = MixedBlockPool(4, (2, 5), SIZE), FakeMemory()
    room = AdmissionController(pool, HostMemory(memory, pool, 100_000), RULES)
    idle, speaker = guest("idle", pool), guest("speaker", pool, 10)
    room.admit(idle, [], 0)
    show(idle, 40)
    compute(idle.stream)
    idle.at_rest = True
    assert pool.free_blocks == 3
    later_ns = 10 * NS_PER_S
    room.admit(speaker, [idle], later_ns)
    speaker.stream.append([*range(20, 36)])
    users = [idle, speaker]
    assert room.refuse([(speaker, speaker.stream)], users, later_ns) == {}
    assert idle.stream.offload_slot.num_blocks == 2 * 2 + 1
    assert pool.free_blocks == 8
    compute(speaker.stream)
    room.restore(idle, users, later_ns)
    assert (room.dropped, idle.stream.kv_len) == (1, 0)
