from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.limits import MAX_ITEM_ID_CHARS


def test_random_ids_are_distinct_and_short_enough_to_come_back_as_item_ids() -> None:
    """A thousand ids of each kind are all different and within the limit clients are held to."""
    ids = IdMaker()
    kinds = (ids.event, ids.item, ids.response, ids.session, ids.conversation, ids.call)
    made = [make() for make in kinds for _ in range(1000)]
    assert len(set(made)) == len(made)
    assert max(map(len, made)) <= MAX_ITEM_ID_CHARS


def test_counting_ids_are_the_same_every_time() -> None:
    """Two counting makers give the same ids, numbered across kinds."""
    first, second = IdMaker.counting(), IdMaker.counting()
    for ids in (first, second):
        assert [ids.event(), ids.item(), ids.event()] == ["event_0001", "item_0002", "event_0003"]


def test_each_kind_has_its_prefix() -> None:
    """The prefix names the kind, as on the live service."""
    ids = IdMaker.counting()
    made = [ids.event(), ids.item(), ids.response(), ids.session(), ids.conversation(), ids.call()]
    assert [i.split("_")[0] for i in made] == ["event", "item", "resp", "sess", "conv", "call"]
