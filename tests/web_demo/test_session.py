"""The page's state from server events alone, without a server."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

Json = dict[str, Any]

RECEIVE = """async (events) => {
  const { Session } = await import("./session.js");
  const session = new Session();
  const phases = events.map((event) => { session.receive(event); return session.phase; });
  return { phases, session };
}"""

OPENED: Json = {"type": "session.updated", "session": {}}
STARTED: Json = {"type": "input_audio_buffer.speech_started", "item_id": "u1"}
STOPPED: Json = {"type": "input_audio_buffer.speech_stopped", "item_id": "u1"}
CREATED: Json = {"type": "response.created", "response": {"id": "r1"}}
ITEM: Json = {
    "type": "response.output_item.added",
    "response_id": "r1",
    "item": {"id": "a1", "type": "message", "role": "assistant", "content": []},
}


def heard(committed: str, tentative: str) -> Json:
    return {
        "type": "gateway.hearing",
        "item_id": "u1",
        "committed": committed,
        "tentative": tentative,
    }


def delta(text: str) -> Json:
    return {"type": "response.output_text.delta", "item_id": "a1", "delta": text}


def done(status: str, error: Json | None = None) -> Json:
    details = {"error": error} if error else None
    response = {"id": "r1", "status": status, "status_details": details}
    return {"type": "response.done", "response": response}


def receive(workbench: Page, *events: Json) -> tuple[list[str], Json]:
    """The phase after each event, and the state after all of them."""
    result = workbench.evaluate(RECEIVE, list(events))
    return result["phases"], result["session"]


def test_a_spoken_turn_passes_through_its_phases(workbench: Page) -> None:
    """idle, speaking, thinking, answering and back, as the events of a turn come."""
    completed = {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": "u1",
        "transcript": " Hello there.",
    }
    phases, session = receive(
        workbench,
        OPENED,
        STARTED,
        heard("Hello", "their"),
        STOPPED,
        CREATED,
        ITEM,
        delta("Hi"),
        completed,
        delta("!"),
        done("completed"),
    )
    assert phases == ["idle", *["speaking"] * 2, *["thinking"] * 3, *["answering"] * 3, "idle"]
    told = [(e["role"], e["text"], e["tentative"], e["state"]) for e in session["entries"]]
    assert told == [("user", "Hello there.", "", "done"), ("assistant", "Hi!", "", "done")]


def test_committed_words_stand_apart_from_tentative_ones(workbench: Page) -> None:
    """Each hearing replaces the one before; only the tail is tentative."""
    _, session = receive(workbench, OPENED, STARTED, heard("a", "bee"), heard("a b", "sea"))
    entry = session["entries"][0]
    assert (entry["text"], entry["tentative"], entry["state"]) == ("a b", "sea", "open")


def test_without_hearings_the_deltas_are_shown(workbench: Page) -> None:
    """A server that sends only the standard transcription events shows words all the same."""
    kind = "conversation.item.input_audio_transcription.delta"
    deltas = [{"type": kind, "item_id": "u1", "delta": text} for text in ("What", " now")]
    _, session = receive(workbench, OPENED, STARTED, *deltas)
    assert session["entries"][0]["text"] == "What now"
    _, session = receive(workbench, OPENED, STARTED, heard("What now", ""), *deltas)
    assert session["entries"][0]["text"] == "What now"


def test_talking_over_an_answer_marks_it_interrupted(workbench: Page) -> None:
    """The cancelled answer keeps its words; one cancelled before its first word vanishes."""
    again = {**STARTED, "item_id": "u2"}
    phases, session = receive(
        workbench, OPENED, STARTED, STOPPED, CREATED, ITEM, delta("Well"), again, done("cancelled")
    )
    assert phases[-1] == "speaking"
    states = [(entry["id"], entry["state"]) for entry in session["entries"]]
    assert states == [("u1", "open"), ("a1", "interrupted"), ("u2", "open")]
    _, session = receive(workbench, OPENED, STARTED, STOPPED, CREATED, ITEM, done("cancelled"))
    assert [entry["id"] for entry in session["entries"]] == ["u1"]


def test_a_failed_answer_says_why(workbench: Page) -> None:
    """The server's own sentence becomes the notice, and the page is ready for the next turn."""
    phases, session = receive(
        workbench,
        OPENED,
        STARTED,
        STOPPED,
        CREATED,
        done("failed", {"message": "The engine died."}),
    )
    assert phases[-1] == "idle"
    assert session["notice"] == "The engine died."


def test_unknown_events_change_nothing(workbench: Page) -> None:
    """Types that the page does not know, whatever their names, are passed over."""
    odd = [{"type": kind} for kind in ("rate_limits.updated", "toString", "__proto__", "x")]
    _, before = receive(workbench, OPENED)
    _, after = receive(workbench, OPENED, *odd)
    assert after == before


def test_an_engine_restart_is_shown_and_ends(workbench: Page) -> None:
    """restarting while the engine is away, then ready again in the same session."""
    status = {"type": "gateway.engine.status", "status": "restarting", "message": "It died."}
    phases, _ = receive(workbench, OPENED, status, {**status, "status": "ready"})
    assert phases == ["idle", "restarting", "idle"]


def test_silence_between_two_holds_is_no_entry(workbench: Page) -> None:
    """Of a call the server hears the silence, too; and what is cleared with the next press goes,
    but not the turn before it, whose words are still under way."""
    code = RECEIVE.replace("new Session();", "new Session(); session.byHand = true;")
    committed = {"type": "input_audio_buffer.committed", "item_id": "u1"}
    events = [OPENED, heard("a b", ""), committed, {**heard("", ""), "item_id": "u2"}]
    noise = [{**heard("", "hm"), "item_id": "u2"}, {"type": "input_audio_buffer.cleared"}]
    session = workbench.evaluate(code, events)["session"]
    assert [entry["id"] for entry in session["entries"]] == ["u1"]
    session = workbench.evaluate(code, events + noise[:1])["session"]
    assert [entry["id"] for entry in session["entries"]] == ["u1", "u2"]
    session = workbench.evaluate(code, events + noise)["session"]
    assert [entry["id"] for entry in session["entries"]] == ["u1"]


CONTINUED: Json = {
    "type": "gateway.turn.continued",
    "item_id": "u2",
    "continued_item_id": "u1",
    "response_id": "r1",
}
GOES_ON = (
    OPENED,
    STARTED,
    STOPPED,
    {"type": "input_audio_buffer.committed", "item_id": "u1"},
    {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": "u1",
        "transcript": "What is the capital",
    },
    CREATED,
    ITEM,
    delta("It is big"),
    {"type": "input_audio_buffer.speech_started", "item_id": "u2"},
    CONTINUED,
)


def bubbles(session: Json) -> list[tuple[str, str, str]]:
    return [(entry["role"], entry["text"], entry["state"]) for entry in session["entries"]]


def test_a_message_that_goes_on_stays_one_bubble(workbench: Page) -> None:
    """The answer's bubble is gone at once; the person's grows, and stays where the first part's
    item is deleted."""
    phases, session = receive(workbench, *GOES_ON)
    assert phases[-1] == "speaking"
    assert bubbles(session) == [("user", "What is the capital", "open")]
    _, session = receive(
        workbench,
        *GOES_ON,
        done("cancelled"),
        {"type": "conversation.item.deleted", "item_id": "a1"},
        heard("What is the capital", " of") | {"item_id": "u2"},
        {"type": "conversation.item.deleted", "item_id": "u1"},
        {"type": "input_audio_buffer.committed", "item_id": "u2"},
        {
            "type": "conversation.item.input_audio_transcription.completed",
            "item_id": "u2",
            "transcript": "What is the capital of France?",
        },
    )
    assert bubbles(session) == [("user", "What is the capital of France?", "done")]


def test_a_continuation_that_is_dropped_leaves_the_first_part(workbench: Page) -> None:
    """Its bubble is that of the first part's item again, which is still a message."""
    cleared = {"type": "input_audio_buffer.cleared"}
    words = heard("What is the capital", " of") | {"item_id": "u2"}
    _, session = receive(workbench, *GOES_ON, words, cleared)
    assert bubbles(session) == [("user", "What is the capital", "done")]
    assert session["entries"][0]["id"] == "u1"
