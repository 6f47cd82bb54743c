"""An answer's item while it grows: deleted, cut, cancelled."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio
from tests.gateway.session_bench import Json, SessionBench, user_text

CANCELLED = api.FinishReason.CANCELLED


def growing(*words: str, speaks: bool = False) -> tuple[SessionBench, str, int]:
    """An answer that has said so much; its item and generation."""
    bench = SessionBench(speaks=speaks)
    bench.client("conversation.item.create", item=user_text("Hello", id="q"))
    bench.client("response.create")
    asked = bench.respond_command()
    for word in words:
        bench.engine(api.Delta("sess_test", asked.generation, word, bench.now_ns))
    bench.clear()
    return bench, asked.item_id, asked.generation


def names(event: Json, item_id: str) -> bool:
    return item_id in repr(event)


@pytest.mark.parametrize("cancel", ["no", "before", "after"])
def test_a_growing_answer_that_is_deleted_ends_and_is_gone(cancel: str) -> None:
    """Told deleted, nothing more names it, its response ends, and the engine forgets its text as
    soon as that is known; a further delete says that there is none."""
    bench, item_id, generation = growing("Once", " upon")
    if cancel == "before":
        bench.client("response.cancel")
    bench.client("conversation.item.delete", item_id=item_id)
    if cancel == "after":
        bench.client("response.cancel")
    assert len(bench.commands(api.Cancel)) == 1
    bench.engine(api.Delta("sess_test", generation, " a time", 0))
    bench.finish(generation, "Once upon a time", CANCELLED)
    deleted, *after = bench.sent
    assert deleted["type"] == "conversation.item.deleted"
    assert [event["type"] for event in after] == ["response.done"]
    assert not any(names(event, item_id) for event in after)
    assert after[0]["response"]["status"] == "cancelled"
    assert after[0]["response"]["output"] == []
    assert [c.item_id for c in bench.commands(api.RemoveItem)] == [item_id]
    bench.client("conversation.item.delete", item_id=item_id)
    assert bench.error()["code"] == "item_delete_invalid_item_id"


def test_an_answer_that_is_still_spoken_can_be_deleted() -> None:
    """Its text is over, its sound is not: both end."""
    bench, item_id, generation = growing("It is big.", speaks=True)
    bench.finish(generation, "It is big.")
    bench.client("conversation.item.delete", item_id=item_id)
    assert bench.commands(api.RemoveItem)[0].item_id == item_id
    assert bench.last("response.done")["response"]["output"] == []
    bench.voice(SynthesisedAudio("sess_test", generation, 0, bytes(100)))
    assert not bench.played


def test_what_came_behind_a_cancel_is_not_in_the_prompt() -> None:
    """The engine had got further than the client was told: its item is cut to that."""
    bench, item_id, generation = growing("Once")
    bench.client("response.cancel")
    bench.engine(api.Delta("sess_test", generation, " upon", 0))
    bench.finish(generation, "Once upon", CANCELLED)
    heard = api.Item(item_id, api.Role.ASSISTANT, (api.Text("Once"),))
    assert bench.told[-2:] == [
        api.RemoveItem("sess_test", item_id),
        api.AddItem("sess_test", heard, None),
    ]
    bench, item_id, generation = growing()
    bench.client("response.cancel")
    bench.finish(generation, "Once", CANCELLED)
    assert bench.told[-1] == api.RemoveItem("sess_test", item_id)


def test_an_answer_that_was_over_before_its_cancel_is_cancelled() -> None:
    """What was not sent any more is not called complete."""
    bench, _, generation = growing("Once")
    bench.client("response.cancel")
    bench.engine(api.Delta("sess_test", generation, " upon", 0))
    bench.finish(generation, "Once upon")
    done = bench.last("response.done")["response"]
    assert (done["status"], done["output"][0]["status"]) == ("cancelled", "incomplete")


def test_nothing_in_the_closing_events_brings_back_what_was_cut() -> None:
    """A truncation to 0 while it runs: item, part, transcript and response are empty."""
    bench, item_id, generation = growing("It is big.", " More.", speaks=True)
    cut = {"item_id": item_id, "content_index": 0, "audio_end_ms": 0}
    bench.client("conversation.item.truncate", **cut)
    bench.finish(generation, "It is big. More.")
    bench.say_all()
    bench.clear()
    bench.client("conversation.item.retrieve", item_id=item_id)
    assert bench.last("conversation.item.retrieved")["item"]["content"][0]["transcript"] == ""
    bench, item_id, generation = growing("It is big.", " More.", speaks=True)
    bench.client("conversation.item.truncate", **cut)
    bench.client("response.cancel")
    bench.finish(generation, "It is big. More.", CANCELLED)
    closing = bench.sent
    assert bench.last("conversation.item.done")["item"]["content"][0]["transcript"] == ""
    assert bench.last("response.done")["response"]["output"][0]["content"][0]["transcript"] == ""
    assert not any(names(event, "big") for event in closing)
    assert bench.commands(api.RemoveItem)[0].item_id == item_id
    assert not bench.commands(api.AddItem)


def test_an_answer_stands_behind_what_it_has_read() -> None:
    """An item that came while nothing was said yet follows it, for client and engine."""
    bench, _, generation = growing()
    bench.client("conversation.item.create", item=user_text("And?", id="late"))
    bench.client("conversation.item.delete", item_id="q")
    bench.engine(api.Delta("sess_test", generation, "Yes", 0))
    assert bench.of("conversation.item.added")[-1]["previous_item_id"] is None
    bench.finish(generation, "Yes")
    assert bench.last("conversation.item.done")["previous_item_id"] is None
    assert bench.commands(api.AddItem)[0].after is None


def test_an_answer_to_input_of_its_own_joins_as_it_was_heard() -> None:
    """The engine does not have it before: nothing is taken out, and it is put in once."""
    bench = SessionBench(speaks=True)
    bench.client("response.create", response={"input": [user_text("Hello")]})
    asked = bench.respond_command()
    bench.engine(api.Delta("sess_test", asked.generation, "It is big. Very.", 0))
    bench.voice(SynthesisedAudio("sess_test", asked.generation, 0, bytes(2 * 24_000)))
    bench.client(
        "conversation.item.truncate", item_id=asked.item_id, content_index=0, audio_end_ms=500
    )
    bench.finish(asked.generation, "It is big. Very.")
    bench.voice(ClauseDone("sess_test", asked.generation, 0))
    bench.say_all()
    assert not bench.commands(api.RemoveItem)
    assert len(bench.commands(api.AddItem)) == 1
    assert not bench.of("error")


def test_a_report_does_not_name_a_deleted_question() -> None:
    """Null, as where there was none."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    bench.client("conversation.item.create", item=user_text("Hello", id="q"))
    bench.client("response.create")
    bench.answer("Yes.")
    assert bench.last("gateway.latency.report")["item_id"] is None
