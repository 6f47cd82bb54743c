"""One person who converses, as a client that plays answers in real time. No I/O, no clock.

    away (muted) ─▶ think ─▶ speak, type or show ─▶ wait ─▶ listen to the end ─┬▶ think …
                               ▲                              │ barge in       └▶ away …
                               └──────────────────────────────┘

`tick` is called once for each packet of `PACKET_MS` and returns what to send; `take` gets what
comes. Lengths are drawn from a seed (`headstart.benchmarks.inputs.turn_taking`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from headstart.benchmarks.harness.packets import PACKET_MS
from headstart.benchmarks.harness.websocket_frames import text_frame
from headstart.benchmarks.inputs.turn_taking import DEFAULT, People, Turn, draw_turn
from headstart.benchmarks.server.spoken_turns import SpokenTurns
from headstart.talk.media.audio import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

AWAY_SHARE = 0.06  # of the times between two turns
AWAY_S = (30.0, 90.0)
BEGINS_AWAY_SHARE = 0.23  # what those times come to, at some 12 s from turn to turn
GOLDEN = 0.618034
TYPED_SHARE, SHOWN_SHARE = 0.04, 0.02  # of the turns
BARGE_WITHIN_S = 6.0  # of an answer's beginning
FIRST_TURN_WITHIN_S = 8.0
ANSWER_WAIT_S = 15.0
LONGEST_ANSWER_S = 90.0
TYPED = (
    "Tell me something about bees.",
    "What should I cook tonight?",
    "How far is it from London to Rome?",
    "Why do cats purr?",
)
SHOWN_WORDS = "What do you see in this picture?"
_SOUND = b'{"type":"response.output_audio.delta"'
_DELTA = b'"delta":"'


class Doing(StrEnum):
    """What a person does."""

    AWAY = "away"
    THINKING = "thinking"
    SPEAKING = "speaking"
    WAITING = "waiting"
    LISTENING = "listening"


@dataclass(eq=False)
class Answer:
    """What came of one response, on the client's clock. `ends_s`: when what has come will have been
    played; `gap_s`: silence between its pieces, added up; `stopped_s`: not played beyond."""

    response_id: str
    item_id: str = ""
    first_text_s: float | None = None
    first_sound_s: float | None = None
    ends_s: float | None = None
    stopped_s: float | None = None
    sound_s: float = 0.0
    gap_s: float = 0.0
    status: str = ""
    failure: str = ""

    def add_sound(self, length_s: float, now_s: float) -> None:
        """A piece has come. It is played behind the one before, or at once if that is over."""
        self.sound_s += length_s
        if self.first_sound_s is None:
            self.first_sound_s = self.ends_s = now_s
        assert self.ends_s is not None
        if self.stopped_s is None:
            self.gap_s += max(now_s - self.ends_s, 0.0)
            self.ends_s = max(self.ends_s, now_s) + length_s

    def is_heard(self, now_s: float) -> bool:
        """Whether some of it is still to be played."""
        return self.stopped_s is None and self.ends_s is not None and now_s < self.ends_s

    def stop(self, now_s: float) -> int:
        """Play no more of it. Returns how many ms of it were played."""
        assert self.first_sound_s is not None
        assert self.ends_s is not None
        self.stopped_s = now_s
        left_s = max(self.ends_s - now_s, 0.0)
        return max(int((self.sound_s - left_s) * 1000), 0)

    @property
    def unheard_s(self) -> float:
        """Sound that came and was not played."""
        if self.stopped_s is None or self.first_sound_s is None:
            return 0.0
        return max(self.sound_s - (self.stopped_s - self.first_sound_s - self.gap_s), 0.0)


@dataclass(eq=False)
class Asked:
    """A turn that was taken. `asked_s`: when its last packet of speech, or its request, was sent;
    `counts`: whether it is in the figures; `over`: the answer that it began in the middle of."""

    kind: str
    asked_s: float = 0.0
    counts: bool = False
    answer: Answer | None = None
    over: Answer | None = None
    stop_s: float | None = None  # from its first packet until that answer was stopped


@dataclass
class Tally:
    """What all sessions have seen. `packets` by what a person does; `reports` by response."""

    counting: bool = False
    asked: list[Asked] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    lags_ms: list[float] = field(default_factory=list)
    packets: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    false_ends: int = 0  # answers that began while a person was still speaking


class Person:
    """`number` and `seed` decide what it says and when. `picture`: what it shows, a data URI."""

    def __init__(
        self,
        number: int,
        seed: int,
        turns: SpokenTurns,
        tally: Tally,
        picture: str,
        people: People = DEFAULT,
    ) -> None:
        self._chance = Random(f"{seed}-{number}")
        # Spread evenly: of few people as large a share begins away as of many.
        self._begins_away = (number + 1) * GOLDEN % 1 < BEGINS_AWAY_SHARE
        self._turns, self._tally, self._picture, self._people = turns, tally, picture, people
        self._doing, self._until_s = Doing.THINKING, 0.0
        self._begun = False
        self._drawn: Turn = draw_turn(people, self._chance)
        self._speech: list[bytes] = []
        self._at = 0
        self._spoken_since_s = 0.0
        self._asked: Asked | None = None
        self._answers: dict[str, Answer] = {}
        self._sent_at_s: list[float] = []
        self._hiss_at = self._chance.randrange(len(turns.hiss))

    # --- what it does ----------------------------------------------------------------------------

    def connected(self, now_s: float) -> None:
        """A session was opened, for the first time or again: nothing of an earlier one counts."""
        self._answers.clear()
        self._sent_at_s.clear()
        self._asked = None
        if self._begins_away:
            self._rest(Doing.AWAY, now_s + self._chance.uniform(0, AWAY_S[1]))
        else:
            self._rest(Doing.THINKING, now_s + self._chance.uniform(0, FIRST_TURN_WITHIN_S))

    def tick(self, now_s: float) -> bytes:
        """What is sent in this packet's time, as frames; nothing while it is muted."""
        sent = self._step(now_s)
        if self._tally.counting:
            listens = self._doing is Doing.WAITING and self._hears(now_s)
            self._tally.packets[Doing.LISTENING if listens else self._doing] += 1
        if self._doing is Doing.AWAY:
            return sent
        self._sent_at_s.append(now_s)
        return sent + self._packet(now_s)

    def _step(self, now_s: float) -> bytes:
        """Go on to what is due. What is sent beside sound."""
        match self._doing:
            case Doing.AWAY | Doing.THINKING if now_s >= self._until_s:
                return self._begin(now_s, None)
            case Doing.WAITING:
                assert self._asked is not None
                answer = self._asked.answer
                if self._is_over(self._asked, now_s):
                    self._go_on(now_s)
                elif answer is not None and self._barges_in(answer, now_s):
                    return self._begin(now_s, answer)
            case _:
                pass
        return b""

    def _begin(self, now_s: float, over: Answer | None) -> bytes:
        """Take a turn. A barge-in is always spoken."""
        kind, draw = "spoken", self._chance.random()
        if over is None and draw < TYPED_SHARE + SHOWN_SHARE:
            kind = "typed" if draw < TYPED_SHARE else "shown"
        self._asked = Asked(kind, over=over)
        self._drawn = draw_turn(self._people, self._chance)
        if kind == "spoken":
            self._doing, self._spoken_since_s = Doing.SPEAKING, now_s
            self._speech, self._at = self._turns.say(self._drawn, self._chance), 0
            return b""
        self._ask(now_s)
        words = SHOWN_WORDS if kind == "shown" else self._chance.choice(TYPED)
        content: list[dict[str, str]] = [{"type": "input_text", "text": words}]
        if kind == "shown":
            content.insert(0, {"type": "input_image", "image_url": self._picture})
        item = {"type": "message", "role": "user", "content": content}
        return _frame("conversation.item.create", item=item) + _frame("response.create")

    def _packet(self, now_s: float) -> bytes:
        """The next packet of sound."""
        if self._doing is not Doing.SPEAKING:
            self._hiss_at = (self._hiss_at + 1) % len(self._turns.hiss)
            return self._turns.hiss[self._hiss_at]
        packet = self._speech[self._at]
        self._at += 1
        if self._at == len(self._speech):
            self._ask(now_s)
        return packet

    def _ask(self, now_s: float) -> None:
        asked = self._asked
        assert asked is not None
        self._doing, asked.asked_s, asked.counts = Doing.WAITING, now_s, self._tally.counting
        self._tally.asked.append(asked)

    def _is_over(self, asked: Asked, now_s: float) -> bool:
        """Whether the answer was heard to its end, or is not waited for any longer."""
        answer, waited_s = asked.answer, now_s - asked.asked_s
        if answer is None:
            return waited_s > ANSWER_WAIT_S
        done = answer.status != "" and not answer.is_heard(now_s)
        return done or waited_s > LONGEST_ANSWER_S

    def _hears(self, now_s: float) -> bool:
        return any(answer.is_heard(now_s) for answer in self._answers.values())

    def _barges_in(self, answer: Answer, now_s: float) -> bool:
        share, since_s = self._drawn.barge_in, answer.first_sound_s
        if share is None or since_s is None or not answer.is_heard(now_s):
            return False
        return now_s >= since_s + share * BARGE_WITHIN_S

    def _go_on(self, now_s: float) -> None:
        self._answers = {
            name: answer for name, answer in self._answers.items() if not answer.status
        }
        if self._chance.random() < AWAY_SHARE:
            self._rest(Doing.AWAY, now_s + self._chance.uniform(*AWAY_S))
        else:
            self._rest(Doing.THINKING, now_s + self._drawn.think_s)

    def _rest(self, doing: Doing, until_s: float) -> None:
        self._doing, self._until_s = doing, until_s

    # --- what it gets ----------------------------------------------------------------------------

    def take(self, payload: bytes, now_s: float) -> bytes:
        """A message of the server has come; returns what a client sends for it, as frames."""
        if payload.startswith(_SOUND):  # most bytes are sound, which is not decoded
            self._sound(payload, now_s)
            return b""
        event = json.loads(payload)
        kind, tally = event["type"], self._tally
        match kind:
            case "response.created":
                self._created(event["response"]["id"])
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                answer = self._answers.get(event["response_id"])
                if answer is not None:
                    answer.item_id = event["item_id"]
                    answer.first_text_s = answer.first_text_s or now_s
            case "response.done":
                self._done(event["response"])
            case "input_audio_buffer.speech_started":
                return self._stop(now_s)
            case "error":
                tally.errors[event["error"].get("code") or "unnamed"] += 1
            case "gateway.chunk.report" if tally.counting:
                tally.chunks.append(event)
            case "gateway.latency.report":
                tally.reports[event["response_id"]] = event
            case "gateway.hearing" if tally.counting:
                packet = min(int(event["audio_ms"] / PACKET_MS), len(self._sent_at_s)) - 1
                tally.lags_ms.append((now_s - self._sent_at_s[max(packet, 0)]) * 1000)
            case _:
                pass
        return b""

    def _created(self, response_id: str) -> None:
        answer = self._answers[response_id] = Answer(response_id)
        if self._doing is Doing.WAITING and self._asked is not None:
            if self._asked.answer is None or self._asked.answer.first_sound_s is None:
                self._asked.answer = answer
        elif self._doing is Doing.SPEAKING:
            self._tally.false_ends += self._tally.counting

    def _sound(self, payload: bytes, now_s: float) -> None:
        event_id = _text(payload, b'"response_id":"')
        answer = self._answers.get(event_id)
        if answer is None:
            return
        start = payload.index(_DELTA) + len(_DELTA)
        base64_chars = payload.index(b'"', start) - start
        samples = base64_chars * 3 // 4 // BYTES_PER_SAMPLE
        answer.item_id = _text(payload, b'"item_id":"')
        answer.add_sound(samples / SAMPLE_RATE_HZ, now_s)

    def _done(self, response: dict[str, Any]) -> None:
        answer = self._answers.get(response["id"])
        if answer is None:
            return
        answer.status = response["status"]
        details = response.get("status_details") or {}
        if answer.status == "failed":
            answer.failure = (details.get("error") or {}).get("code") or "unnamed"

    def _stop(self, now_s: float) -> bytes:
        """The server has noticed speech: nothing is played on."""
        sent = b""
        for answer in self._answers.values():
            if not answer.is_heard(now_s):
                continue
            played_ms = answer.stop(now_s)
            if self._asked is not None and self._asked.over is answer:
                self._asked.stop_s = now_s - self._spoken_since_s
            sent += _frame(
                "conversation.item.truncate",
                item_id=answer.item_id,
                content_index=0,
                audio_end_ms=played_ms,
            )
        return sent


def _frame(kind: str, **more: Any) -> bytes:
    return text_frame(json.dumps({"type": kind, **more}))


def _text(payload: bytes, name: bytes) -> str:
    """The value behind `name` in a JSON text whose values have no escapes there."""
    start = payload.index(name) + len(name)
    return payload[start : payload.index(b'"', start)].decode()
