"""Items that clients create with ids that the server has given away, or that were just deleted."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.gateway.session.test_item_audio import TRANSCRIBED, heard, spoken
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm, user_text

TAKEN = "item_create_duplicate_item_id"
CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c1"}
PTT = {"audio": {"input": {"turn_detection": None, "transcription": {"model": "any"}}}}


def create(bench: SessionBench, item: Json) -> None:
    bench.client("conversation.item.create", item=item)


def test_a_deleted_item_s_words_go_to_no_other_item_of_its_id() -> None:
    """The words of its sound come when another item, without any content, has its id."""
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    create(bench, spoken(clip_pcm("capital.wav"), id="u1"))
    bench.client("conversation.item.delete", item_id="u1")
    create(bench, CALL | {"id": "u1"})
    bench.clear()
    bench.told += [api.Clip("sess_test", "clip_1", b"", True)]
    heard(bench, "What is the capital of France?")
    assert bench.sent == []
    bench.client("conversation.item.retrieve", item_id="u1")
    assert bench.last("conversation.item.retrieved")["item"]["arguments"] == "{}"


def test_the_id_of_speech_is_its_own_until_its_words_are_there() -> None:
    """While it is spoken, and after its item was deleted; then it is free."""
    bench = SessionBench()
    bench.update(audio=TRANSCRIBED)
    bench.hear(clip_pcm("capital.wav"))
    item_id = bench.last("input_audio_buffer.speech_started")["item_id"]
    create(bench, user_text("Mine", id=item_id))
    assert bench.error()["code"] == TAKEN
    bench.hear(silence_pcm(700))
    bench.client("conversation.item.delete", item_id=item_id)
    bench.clear()
    create(bench, CALL | {"id": item_id})
    assert bench.error()["code"] == TAKEN
    bench.engine(api.Heard("sess_test", api.TurnRef(1), item_id, "What?", 40, transcribed=True))
    assert bench.types() == ["error", "response.created"]
    create(bench, CALL | {"id": item_id})
    assert bench.types()[2:] == ["conversation.item.added", "conversation.item.done"]


@pytest.mark.parametrize("call", [None, 0, 11])
@pytest.mark.parametrize("conversation", ["auto", "none"])
def test_the_ids_of_an_answer_are_its_own_until_it_is_over(
    call: int | None, conversation: str
) -> None:
    """Its message's, although deleted, and those of the calls that it may still make; out of band
    too, where no item of it is in the conversation."""
    bench = SessionBench()
    bench.client("response.create", response={"conversation": conversation})
    asked = bench.respond_command()
    bench.engine(api.Delta("sess_test", asked.generation, "Once", bench.now_ns))
    if call is None and conversation == "auto":
        bench.client("conversation.item.delete", item_id=asked.item_id)
    wanted = asked.item_id if call is None else api.call_item_id(asked.item_id, call)
    create(bench, user_text("Mine", id=wanted))
    assert bench.error()["code"] == TAKEN
    assert wanted in bench.error()["message"]
    bench.finish(asked.generation, "Once", api.FinishReason.CANCELLED)
    bench.clear()
    create(bench, user_text("Mine", id=wanted))
    assert bench.types() == ["conversation.item.added", "conversation.item.done"]


def test_an_item_is_not_called_as_the_place_before_all() -> None:
    """`previous_item_id` "root" is the start: no item can have that id."""
    bench = SessionBench()
    create(bench, user_text("Mine", id="root"))
    assert bench.error()["code"] == "invalid_value"
    assert bench.error()["param"] == "item.id"
