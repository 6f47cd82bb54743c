"""The engine's items follow the books."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.session import conversation
from headstart.gateway.session.conversation import ConversationItem
from headstart.gateway.session.engine_items import amend, forget, keep, keep_answer, said
from tests.gateway.session_bench import SessionBench, user_text

CREATE = "conversation.item.create"


def test_what_is_amended_stands_where_it_stood() -> None:
    """Taken out and put back behind the same item; the same again is no work, and nothing of it
    takes it out for good."""
    bench = SessionBench()
    state = bench.session._context
    first, second = (
        ConversationItem({"id": "a"}, said("a", "A"), known=True),
        ConversationItem({"id": "b"}, None),
    )
    keep(state, first, None)
    keep_answer(state, second, state.conversation.reserve())
    amend(state, first, said("a", "B"))
    amend(state, first, said("a", "B"))
    amend(state, first, None)
    amend(state, first, None)
    forget(state, [first])
    told = [action.command for action in state.take()]  # type: ignore[union-attr]
    assert told == [
        api.RemoveItem("sess_test", "a"),
        api.AddItem("sess_test", api.Item("a", api.Role.ASSISTANT, (api.Text("B"),)), "root"),
        api.RemoveItem("sess_test", "a"),
    ]


def test_what_the_books_forget_the_model_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of too many items could not be named any more; so the engine forgets it too."""
    monkeypatch.setattr(conversation, "ITEMS_MAX", 3)
    bench = SessionBench()
    for number in range(5):
        bench.client(CREATE, item=user_text("x", id=f"i{number}"))
    assert [c.item_id for c in bench.commands(api.RemoveItem)] == ["i0", "i1"]


def test_an_item_that_is_not_in_the_engine_is_not_named_there() -> None:
    """One that was refused is deleted, and followed, without a further error."""
    bench = SessionBench()
    bench.client(CREATE, item=user_text("too long", id="a"))
    bench.client(CREATE, item=user_text("c", id="c"))
    bench.engine(api.Failed("sess_test", "add_item", "context_full", "too long", "a"))
    (error,) = bench.of("error")
    assert error["error"]["message"] == "The item 'a' was not added: too long"
    bench.client(CREATE, item=user_text("b", id="b"), previous_item_id="a")
    assert bench.commands(api.AddItem)[-1].after == "root"
    bench.client("conversation.item.delete", item_id="a")
    assert not bench.commands(api.RemoveItem)
    assert bench.last("conversation.item.deleted")["item_id"] == "a"


def test_an_item_that_is_gone_already_is_no_error() -> None:
    """The client was told that it is deleted, and it is."""
    bench = SessionBench()
    bench.engine(api.Failed("sess_test", "remove_item", "unknown_item", "no item", "x"))
    assert not bench.of("error")
    assert 'code="unknown_item"' in bench.metrics.page().render()[0].decode()


def test_a_transcription_session_s_engine_keeps_nothing() -> None:
    """So nothing is taken out of it."""
    bench = SessionBench(before_start=_transcribes)
    bench.client(CREATE, item=user_text("a", id="a"))
    bench.client(CREATE, item=user_text("b", id="b"), previous_item_id="a")
    bench.client("conversation.item.delete", item_id="a")
    assert not bench.commands(api.RemoveItem)


def _transcribes(bench: SessionBench) -> None:
    from headstart.gateway.protocol.parse import parse_session

    bench.session.preset(parse_session({"type": "transcription"}), 0)
