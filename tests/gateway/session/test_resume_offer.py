"""gateway.session.resume_offer: what a session says about coming back, in virtual time."""

from __future__ import annotations

from headstart.engine import api
from tests.gateway.session_bench import SessionBench


def resumable(bench: SessionBench) -> bool:
    return bench.session.resumable


def offering() -> SessionBench:
    bench = SessionBench()
    bench.session.offer_resume("secret", 60_000)
    bench.clear()
    return bench


def test_only_who_asks_is_told_and_once() -> None:
    """The token comes behind the update that asks, not again with later ones, and stands in no
    other event."""
    bench = offering()
    bench.update(instructions="be brief")
    assert bench.types() == ["session.updated"]
    assert not resumable(bench)
    bench.update(gateway={"resume": True})
    bench.update(gateway={"events": []})
    assert bench.types().count("gateway.session.resumable") == 1
    told = bench.last("gateway.session.resumable")
    assert (told["token"], told["expires_after_ms"]) == ("secret", 60_000)
    assert resumable(bench)
    assert all("secret" not in str(e) for e in bench.sent if e is not told)
    bench.update(gateway=None)
    assert not resumable(bench)


def test_a_server_that_keeps_nobody_offers_nothing() -> None:
    """Without a token to give, asking changes nothing."""
    bench = SessionBench()
    bench.update(gateway={"resume": True})
    assert "gateway.session.resumable" not in bench.types()
    assert not resumable(bench)


def test_a_client_that_missed_nothing_is_told_so_in_one_event() -> None:
    """With the settings in force, and how many events it was sent again."""
    bench = offering()
    bench.resumed(7)
    (event,) = bench.sent
    assert event["type"] == "gateway.session.resumed"
    assert (event["replayed_events"], event["items"]) == (7, 0)
    assert event["session"]["id"] == "sess_test"


def test_a_client_that_lost_everything_gets_the_conversation() -> None:
    """Each item, the answer under way as far as it has got; what follows continues it."""
    bench = offering()
    content = [{"type": "input_text", "text": "Hello"}]
    item = {"type": "message", "role": "user", "content": content, "id": "item_u"}
    bench.client("conversation.item.create", item=item)
    bench.client("response.create")
    (respond,) = (c for c in bench.told if isinstance(c, api.Respond))
    bench.engine(api.Delta("sess_test", respond.generation, "Good", 0))
    bench.clear()
    bench.resumed(None)
    first, *items = bench.sent
    assert (first["replayed_events"], first["items"]) == (None, 2)
    assert [e["type"] for e in items] == ["conversation.item.retrieved"] * 2
    said = [e["item"]["content"][0]["text"] for e in items]
    assert said == ["Hello", "Good"]
    assert items[1]["item"]["status"] == "in_progress"
