"""People who converse: what they send when, what they hear, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headstart.benchmarks.harness.packets import PACKET_MS
from headstart.benchmarks.harness.websocket_frames import text_frame
from headstart.benchmarks.inputs.turn_taking import People, draw_turn
from headstart.benchmarks.server.conversations import numbers
from headstart.benchmarks.server.conversing import (
    ANSWER_WAIT_S,
    AWAY_S,
    BEGINS_AWAY_SHARE,
    Answer,
    Person,
    Tally,
)
from headstart.benchmarks.server.spoken_turns import Sentence, SpokenTurns

PACKET_S = PACKET_MS / 1000
QUESTION = Sentence("what is it", tuple(b"q%d" % at for at in range(50)))
STATEMENT = Sentence("it is", tuple(b"s%d" % at for at in range(25)))
TURNS = SpokenTurns([QUESTION], [STATEMENT] * 9, [b"hiss"] * 20)
SOUND_S = 1.5
NO_BARGE_INS = People(barge_in_share=0.0)


def sound(response: str, seconds: float = SOUND_S) -> bytes:
    delta = "A" * (round(seconds * 24_000) * 2 * 4 // 3)
    event = {"type": "response.output_audio.delta", "event_id": "e", "response_id": response}
    text = json.dumps(event | {"item_id": "i", "delta": delta}, separators=(",", ":"))
    return text.encode()


def event(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}).encode()


class Told:
    """A person, and the clock."""

    def __init__(self, people: People = NO_BARGE_INS) -> None:
        self.tally = Tally(counting=True)
        self.now_s = 100.0
        for number in range(99):  # one who does not begin away
            self.person = Person(number, 1, TURNS, self.tally, "data:", people)
            if not self.person._begins_away:
                break
        self.person.connected(self.now_s)

    def sends(self) -> Iterator[bytes]:
        while True:
            self.now_s += PACKET_S
            yield self.person.tick(self.now_s)

    def asks(self) -> None:
        """Until the next spoken turn is over; what is typed is answered."""
        for _ in range(100_000):
            sent = next(self.sends())
            if b"response.create" in sent:
                self.answer("typed")
            if QUESTION.frames[-1] in sent:
                return
        raise AssertionError("it never asks")

    def answer(self, response: str) -> None:
        created = event("response.created", response={"id": response})
        done = event("response.done", response={"id": response, "status": "completed"})
        for each in (created, sound(response), done):
            self.person.take(each, self.now_s)


def test_the_next_turn_waits_until_the_answer_was_heard() -> None:
    """Its sound is played in real time, however early it came."""
    told = Told()
    told.asks()
    told.answer("r1")
    heard_until_s = told.now_s + SOUND_S
    while told.now_s < heard_until_s:
        assert next(told.sends()) == b"hiss"
    asked = told.tally.asked[-1]
    assert asked.answer is not None
    assert asked.answer.sound_s == pytest.approx(SOUND_S, abs=0.001)
    assert asked.answer.gap_s == 0.0


def test_somebody_without_an_answer_goes_on_after_a_while() -> None:
    """The turn counts as one that was not answered."""
    told = Told()
    told.asks()
    began_s = told.now_s
    told.asks()
    assert told.now_s > began_s + ANSWER_WAIT_S
    assert numbers(told.tally)["answered"] < numbers(told.tally)["turns"]


def test_a_pause_in_the_sound_is_a_gap_and_early_sound_is_none() -> None:
    """A client plays what it has: the second piece came in time, the third late by a second."""
    answer = Answer("r")
    answer.add_sound(1.0, 10.0)
    answer.add_sound(1.0, 10.2)
    answer.add_sound(1.0, 13.0)
    assert answer.gap_s == pytest.approx(1.0)
    assert answer.is_heard(13.9)
    assert not answer.is_heard(14.1)


def test_a_barge_in_stops_the_sound_and_says_how_much_was_heard() -> None:
    """At the server's `speech_started`, as the API's documentation asks of a client."""
    told = Told(People(barge_in_share=1.0))
    told.asks()
    told.person.take(event("response.created", response={"id": "r"}), told.now_s)
    told.person.take(sound("r", 60.0), told.now_s)
    began_s = told.now_s
    told.asks()
    stopped = told.person.take(event("input_audio_buffer.speech_started"), told.now_s)
    assert b"conversation.item.truncate" in stopped
    played_ms = json.loads(stopped[stopped.index(b"{") :])["audio_end_ms"]
    assert played_ms == pytest.approx((told.now_s - began_s) * 1000, abs=2)
    answer = told.tally.asked[-1].over
    assert answer is not None
    assert answer.unheard_s == pytest.approx(60 - played_ms / 1000, abs=0.01)
    assert told.tally.asked[-1].stop_s is not None


def test_the_first_answer_behind_a_turn_is_its_own() -> None:
    """One that begins while somebody still speaks is a false end, and answers nothing."""
    told = Told()
    while QUESTION.frames[0] not in next(told.sends()):
        pass
    told.person.take(event("response.created", response={"id": "early"}), told.now_s)
    told.asks()
    told.now_s += 0.5
    told.answer("right")
    asked = told.tally.asked[-1]
    assert told.tally.false_ends == 1
    assert asked.answer is not None
    assert asked.answer.response_id == "right"
    assert numbers(told.tally)["first_sound_ms_p50"] == pytest.approx(500, abs=1)


def test_somebody_who_is_away_sends_nothing() -> None:
    """As a muted client; some begin so, whatever the number of people."""
    away = [Person(n, 1, TURNS, Tally(), "")._begins_away for n in range(100)]
    assert sum(away) == pytest.approx(100 * BEGINS_AWAY_SHARE, abs=2)
    tally = Tally()
    person = Person(away.index(True), 1, TURNS, tally, "")
    person.connected(0.0)
    assert person.tick(0.01) == b""
    assert person.tick(AWAY_S[1] + 1) != b""


def test_turns_are_about_as_long_as_they_were_drawn() -> None:
    """And end in a question."""
    chance = Random(1)
    drawn = [draw_turn(NO_BARGE_INS, chance) for _ in range(300)]
    said = [TURNS.say(turn, chance) for turn in drawn]
    assert all(frames[-50:] == list(QUESTION.frames) for frames in said)
    mean_s = sum(min(turn.speech_s, 12) for turn in drawn) / 300
    assert sum(map(len, said)) / 300 * PACKET_S == pytest.approx(mean_s, rel=0.15)


def test_frames_of_sound_are_events_of_a_client() -> None:
    """What is not spoken goes as any other event."""
    told = Told()
    sent = b""
    while b"response.create" not in sent:
        sent = next(told.sends())
        if QUESTION.frames[-1] in sent:
            told.answer("r")
    assert text_frame('{"type": "response.create"}') in sent
