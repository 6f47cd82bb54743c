"""One response's events, whatever its end."""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.protocol.events import Events
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.session.response import Response, ResponseFacts, ending_of, failed


def response(conversation_id: str | None = "conv") -> Response:
    facts = ResponseFacts("resp", "item", 1, conversation_id, "inf", {"k": "v"})
    return Response(facts, Events(IdMaker.counting()))


def finished(reason: api.FinishReason) -> api.Finished:
    return api.Finished(
        "s", 1, reason, "x", api.Usage(input_text=2, output=1), api.KvStats(), code="c", message="m"
    )


def test_every_way_to_end_has_its_words() -> None:
    """Status and details by the engine's reason."""
    reasons = api.FinishReason
    statuses = {reason: ending_of(finished(reason), None).status for reason in reasons}
    assert statuses == {
        reasons.STOP: "completed",
        reasons.LENGTH: "incomplete",
        reasons.CANCELLED: "cancelled",
        reasons.FAILED: "failed",
    }
    assert ending_of(finished(reasons.LENGTH), None).details.reason == "max_output_tokens"
    interrupted = ending_of(finished(reasons.CANCELLED), "turn_detected")
    assert interrupted.details.reason == "turn_detected"
    assert ending_of(finished(reasons.FAILED), None).details.code == "c"


def test_whatever_was_opened_is_closed() -> None:
    """A response cut short still ends its part, its item and itself; the item is incomplete."""
    r = response()
    r.open("before")
    r.delta("Hel")
    events = r.finish(ending_of(finished(api.FinishReason.CANCELLED), None))
    assert [e["type"] for e in events] == [
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert events[2]["item"]["status"] == "incomplete"
    assert events[2]["previous_item_id"] == "before"
    assert events[0]["text"] == "Hel"


def test_a_response_without_text_has_no_item() -> None:
    """One that fails before its first word announces nothing but its end."""
    r = response()
    (done,) = r.finish(failed("engine_lost", "gone"))
    assert done["response"]["output"] == []
    assert done["response"]["status_details"]["error"]["code"] == "engine_lost"
    assert done["response"]["usage"] is None


def test_out_of_band_has_no_conversation() -> None:
    """No conversation.item events and a null conversation id; metadata is echoed throughout."""
    r = response(None)
    events = [*r.create(), *r.open(None), r.delta("x")]
    events += r.finish(ending_of(finished(api.FinishReason.STOP), None))
    assert not [e for e in events if e["type"].startswith("conversation.")]
    assert events[0]["response"]["conversation_id"] is None
    assert events[0]["response"]["metadata"] == events[-1]["response"]["metadata"] == {"k": "v"}
