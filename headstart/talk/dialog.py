"""Collects the server's events: transcripts, answers, latency budgets and chunks of each turn.

No I/O: `Dialog.receive` takes one event at a time; a turn is `settled` when no more events of it
can come. One file is one turn, even if pauses in it made the server answer early: its transcript is
everything recognised, its answer the last one. Where the server takes an early answer back, both
parts are one utterance.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

CHUNK_KEYS = ("start_sample", "duration_ms", "due_ms", "stages_ms", "latency_ms", "headroom")


@dataclass
class Utterance:
    """A user item made of speech."""

    item_id: str
    committed: bool = False
    final: bool = False
    transcript: str = ""
    hearing: tuple[str, str] | None = None
    """The words so far, committed and tentative, from a server that sends them."""
    pauses: list[dict[str, float]] = field(default_factory=list)
    """Short pauses: `audio_ms`, and the model's `probability` that the message had ended there."""

    def words(self) -> tuple[str, str]:
        """The committed and the tentative words to show now. In the end no word is tentative."""
        if self.final or self.hearing is None:
            return self.transcript.strip(), ""
        return self.hearing


@dataclass
class Answer:
    """One response."""

    response_id: str
    text: str = ""
    status: str = "in_progress"
    error: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    report: Event | None = None
    """The newest: a spoken answer may have another one once it was heard."""
    played: bool = False
    """The server, which plays on a call, has ended its sound."""
    after_utterances: int = 0
    """How many utterances had been committed when it began."""

    @property
    def audio_ms(self) -> float:
        """How much sound was made of it, by its report."""
        voice = None if self.report is None else self.report.get("voice")
        return voice["audio_ms"] if voice else 0.0


@dataclass
class Turn:
    """One file's part of the conversation."""

    file: str
    transcribes: bool = True
    reports: bool = False
    """The server sends `gateway.latency.report`s."""
    all_sent: bool = False
    """The server has processed every packet."""
    utterances: dict[str, Utterance] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    taken_back: int = 0
    """Answers to a first part of the speech that the server took back."""

    @property
    def speaking(self) -> bool:
        """Whether an utterance has begun and is not committed."""
        return any(not utterance.committed for utterance in self.utterances.values())

    @property
    def committed(self) -> int:
        """The number of committed utterances."""
        return sum(utterance.committed for utterance in self.utterances.values())

    @property
    def heard_nothing(self) -> bool:
        return self.all_sent and not self.utterances

    @property
    def settled(self) -> bool:
        if not self.all_sent or self.speaking:
            return False
        if self.transcribes and not all(said.final for said in self.utterances.values()):
            return False
        if not self.utterances:
            return True
        last = self.last_answer
        if last is None or last.after_utterances < len(self.utterances):
            return False
        if any(answer.status == "in_progress" for answer in self.answers.values()):
            return False
        # An answer without text has no latency report.
        reported = last.report is not None or not last.text or last.status != "completed"
        return reported or not self.reports

    @property
    def sounds(self) -> bool:
        """Whether the server, which plays on a call, is still to end an answer's sound."""
        return any(answer.audio_ms and not answer.played for answer in self.answers.values())

    @property
    def last_answer(self) -> Answer | None:
        return list(self.answers.values())[-1] if self.answers else None

    @property
    def transcript(self) -> str:
        said = [utterance.transcript.strip() for utterance in self.utterances.values()]
        return " ".join(text for text in said if text)

    def to_wire(self) -> dict[str, Any]:
        """The turn's part of the last line of `headstart talk --json`. Missing values are null."""
        last = self.last_answer
        report = last.report if last is not None and last.report is not None else {}
        return {
            "file": self.file,
            "transcript": self.transcript,
            "answer": last.text if last is not None else None,
            "status": last.status if last is not None else None,
            "error": last.error if last is not None else None,
            "budget": report.get("budget"),
            "chunks": chunk_summary(self.chunks),
            "kv": report.get("kv"),
            "usage": last.usage if last is not None else None,
            "facts": {
                key: value
                for key, value in report.items()
                if key not in ("type", "event_id", "budget", "kv", "usage")
            },
            "utterances": len(self.utterances),
            "pauses": [pause for said in self.utterances.values() for pause in said.pauses],
            "answers": len(self.answers),
            "taken_back": self.taken_back,
        }


def chunk_summary(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Count, overruns, latency and least headroom of a turn's chunks, and each chunk."""
    latencies = sorted(chunk["latency_ms"] for chunk in chunks)
    headrooms = [chunk["headroom"] for chunk in chunks if chunk["headroom"] is not None]
    return {
        "count": len(chunks),
        "overruns": sum(chunk["latency_ms"] > chunk["due_ms"] for chunk in chunks),
        "latency_p50_ms": latencies[(len(latencies) - 1) // 2] if latencies else None,
        "latency_max_ms": latencies[-1] if latencies else None,
        "headroom_min": min(headrooms) if headrooms else None,
        "headroom_mean": sum(headrooms) / len(headrooms) if headrooms else None,
        "each": chunks,
    }


class Dialog:
    """All turns of one connection."""

    def __init__(self) -> None:
        self.session: dict[str, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.engine: Event | None = None
        self.turns: list[Turn] = []

    @property
    def turn(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    def begin(self, file: str, reports: bool) -> Turn:
        self.turns.append(Turn(file, reports=reports))
        return self.turns[-1]

    def receive(self, event: Event) -> None:
        """Process one server event; unknown ones are ignored."""
        match event.get("type"):
            case "session.created" | "session.updated" | "gateway.session.resumed":
                self.session = event["session"]
            case "error":
                self.errors.append(event["error"])
            case "gateway.engine.status":
                self.engine = event
            case _ if self.turn is not None:
                receive_in_turn(self.turn, event)

    def to_wire(self) -> dict[str, Any]:
        """The last line of `headstart talk --json`: the last turn, and all turns if there are
        several."""
        turns = [turn.to_wire() for turn in self.turns]
        last = dict(turns[-1]) if turns else {}
        if len(turns) > 1:
            last["turns"] = turns
        last["model"] = self.session.get("model")
        last["errors"] = self.errors
        return last


def receive_in_turn(turn: Turn, event: Mapping[str, Any]) -> None:
    """Process an event of the current turn. Events of other kinds, and about items and answers of
    earlier turns, change nothing."""
    kind = event["type"]
    if kind.startswith("response."):
        _receive_answer(turn, event)
    elif kind.startswith("conversation.item.input_audio_transcription."):
        _receive_transcription(turn, event)
    elif kind in _OF_TURN:
        _OF_TURN[kind](turn, event)
    elif kind in _OF_UTTERANCE and event["item_id"] in turn.utterances:
        _OF_UTTERANCE[kind](turn.utterances[event["item_id"]], event)
    elif kind in _OF_ANSWER and event["response_id"] in turn.answers:
        _OF_ANSWER[kind](turn.answers[event["response_id"]], event)


def _begin_utterance(turn: Turn, event: Mapping[str, Any]) -> None:
    turn.utterances[event["item_id"]] = Utterance(event["item_id"])


def _commit_utterance(turn: Turn, event: Mapping[str, Any]) -> None:
    item_id = event["item_id"]
    turn.utterances.setdefault(item_id, Utterance(item_id)).committed = True


def _forget_uncommitted(turn: Turn, _: Mapping[str, Any]) -> None:
    for item_id in [i for i, said in turn.utterances.items() if not said.committed]:
        del turn.utterances[item_id]


def _take_back(turn: Turn, event: Mapping[str, Any]) -> None:
    """The turn went on: what was said of both parts follows under the new item."""
    turn.utterances.pop(event["continued_item_id"], None)
    turn.answers.pop(event["response_id"] or "", None)
    turn.taken_back += 1


def _delete_item(turn: Turn, event: Mapping[str, Any]) -> None:
    turn.utterances.pop(event["item_id"], None)


def _add_chunk(turn: Turn, event: Mapping[str, Any]) -> None:
    chunk = {key: event.get(key) for key in CHUNK_KEYS}
    if chunk["due_ms"] is None:  # a server of before
        chunk["due_ms"] = chunk["duration_ms"]
    turn.chunks.append(chunk)


def _hear(said: Utterance, event: Mapping[str, Any]) -> None:
    said.hearing = (event["committed"], event["tentative"])


def _pause(said: Utterance, event: Mapping[str, Any]) -> None:
    said.pauses.append({"audio_ms": event["audio_ms"], "probability": event["probability"]})


def _played(answer: Answer, _: Mapping[str, Any]) -> None:
    answer.played = True


def _reported(answer: Answer, event: Mapping[str, Any]) -> None:
    answer.report = dict(event)


_OF_TURN: Mapping[str, Callable[[Turn, Mapping[str, Any]], None]] = {
    "input_audio_buffer.speech_started": _begin_utterance,
    "input_audio_buffer.committed": _commit_utterance,
    "input_audio_buffer.cleared": _forget_uncommitted,
    "conversation.item.deleted": _delete_item,
    "gateway.turn.continued": _take_back,
    "gateway.chunk.report": _add_chunk,
}
_OF_UTTERANCE: Mapping[str, Callable[[Utterance, Mapping[str, Any]], None]] = {
    "gateway.hearing": _hear,
    "gateway.end_of_message": _pause,
}
_OF_ANSWER: Mapping[str, Callable[[Answer, Mapping[str, Any]], None]] = {
    "output_audio_buffer.stopped": _played,
    "output_audio_buffer.cleared": _played,
    "gateway.latency.report": _reported,
}


def _receive_transcription(turn: Turn, event: Mapping[str, Any]) -> None:
    said = turn.utterances.get(event["item_id"])
    if said is None:
        return  # of an earlier turn
    match event["type"].rpartition(".")[2]:
        case "delta":
            said.transcript += event.get("delta") or ""
        case "completed":
            said.transcript = event["transcript"]
            said.final = True
        case "failed":
            said.final = True


def _receive_answer(turn: Turn, event: Mapping[str, Any]) -> None:
    if event["type"] == "response.created":
        response_id = event["response"]["id"]
        turn.answers[response_id] = Answer(response_id, after_utterances=turn.committed)
        return
    response_id = event["response"]["id"] if "response" in event else event["response_id"]
    answer = turn.answers.get(response_id)
    if answer is None:
        return
    match event["type"]:
        case "response.output_text.delta" | "response.output_audio_transcript.delta":
            answer.text += event["delta"]
        case "response.done":
            response = event["response"]
            answer.status = response["status"]
            answer.usage = response.get("usage")
            answer.error = (response.get("status_details") or {}).get("error")
