"""A session with the engine's own core behind it, in one process and in virtual time.

Commands and events wait in a queue each until the test lets them through, so that what a client
does can meet any state of the engine. `Mirror` is the client: it knows what it was told.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from headstart.engine import api
from headstart.gateway.session.actions import Action, SendToEngine, SendToTts
from headstart.gateway.tts.messages import ClauseDone, Speak, Stop, SynthesisedAudio
from tests.engine.fakes import Bench, FakeRunner
from tests.gateway.session_bench import Json, SessionBench

NAME = "sess_test"
SOUND_SAMPLES = 2_400  # of each piece of a clause: 100 ms
VAD = {"audio": {"input": {"transcription": {"model": "any"}}}}
EAGER = {
    "audio": {
        "input": {
            "transcription": {"model": "any"},
            "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
        }
    }
}
PTT = {"audio": {"input": {"turn_detection": None, "transcription": {"model": "any"}}}}


class Mirror:
    """The conversation as a client builds it from the events alone. Asserts their order."""

    def __init__(self) -> None:
        self.items: dict[str, Json] = {}
        self.order: list[str] = []
        self.open_items: set[str] = set()  # added, and not yet done
        self.open_parts: set[str] = set()
        self.hearing: set[str] = set()  # words were told, and not that they are final
        self.responses: set[str] = set()
        self.speaking: set[str] = set()
        self.deleted: set[str] = set()
        self.named: set[str] = set()  # every id so far
        self.cut: set[str] = set()
        self.errors: list[Json] = []

    def take(self, event: Json) -> None:
        self.named.update(_names(event))
        if event["type"] == "conversation.item.added":  # an id may be used again
            self.deleted.discard(event["item"]["id"])
        assert not self.deleted & set(_names(event)), f"names a deleted item: {event}"
        if event.get("previous_item_id") is not None:
            assert event["previous_item_id"] in self.items, f"names no item: {event}"
        handle = getattr(self, "_" + event["type"].replace(".", "_"), None)
        if handle is not None:
            handle(event)

    def settled(self) -> None:
        """Everything that was begun has ended."""
        begun = [self.open_items, self.open_parts, self.responses, self.hearing, self.speaking]
        assert not any(begun), f"never ended: {begun}"

    def _error(self, event: Json) -> None:
        self.errors.append(event["error"])

    def _conversation_item_added(self, event: Json) -> None:
        item, previous = event["item"], event["previous_item_id"]
        assert item["id"] not in self.items
        at = 0 if previous is None else self.order.index(previous) + 1
        self.order.insert(at, item["id"])
        self.items[item["id"]] = item
        self.open_items.add(item["id"])

    def _conversation_item_done(self, event: Json) -> None:
        item_id = event["item"]["id"]
        self.open_items.remove(item_id)
        self.items[item_id] = event["item"]
        previous = event["previous_item_id"]
        at = self.order.index(item_id)
        assert previous == (self.order[at - 1] if at else None), f"not before it: {event}"

    def _conversation_item_deleted(self, event: Json) -> None:
        item_id = event["item_id"]
        del self.items[item_id]
        self.order.remove(item_id)
        self.deleted.add(item_id)
        for begun in (self.open_items, self.open_parts, self.hearing):
            begun.discard(item_id)

    def _conversation_item_truncated(self, event: Json) -> None:
        assert event["item_id"] in self.items
        self.cut.add(event["item_id"])

    def _conversation_item_retrieved(self, event: Json) -> None:
        self.items[event["item"]["id"]] = event["item"]

    def _conversation_item_input_audio_transcription_delta(self, event: Json) -> None:
        self.hearing.add(event["item_id"])

    def _conversation_item_input_audio_transcription_completed(self, event: Json) -> None:
        self.hearing.discard(event["item_id"])
        part = self.items[event["item_id"]]["content"][event["content_index"]]
        part["transcript"] = event["transcript"]

    def _conversation_item_input_audio_transcription_failed(self, event: Json) -> None:
        self.hearing.discard(event["item_id"])

    def _input_audio_buffer_speech_started(self, event: Json) -> None:
        self.speaking.add(event["item_id"])

    def _input_audio_buffer_speech_stopped(self, event: Json) -> None:
        self.speaking.remove(event["item_id"])

    def _response_created(self, event: Json) -> None:
        self.responses.add(event["response"]["id"])

    def _response_done(self, event: Json) -> None:
        self.responses.remove(event["response"]["id"])

    def _response_content_part_added(self, event: Json) -> None:
        self.open_parts.add(event["item_id"])

    def _response_content_part_done(self, event: Json) -> None:
        self.open_parts.remove(event["item_id"])

    # --- as the model should read it ---------------------------------------------------------

    def for_engine(self) -> tuple[api.Item, ...]:
        """The items in order, in the engine's terms."""
        return tuple(_read(self.items[item_id]) for item_id in self.order)


def _names(value: Any, key: str = "") -> list[str]:
    """The items that an event names, however deep."""
    if isinstance(value, dict):
        mine = [value["id"]] if value.get("object") == "realtime.item" else []
        return mine + [name for key, inner in value.items() for name in _names(inner, key)]
    if isinstance(value, list):
        return [name for inner in value for name in _names(inner)]
    is_name = key in ("item_id", "previous_item_id") and isinstance(value, str)
    return [value] if is_name else []


def _read(item: Json) -> api.Item:
    """One item as the model reads it; unfinished calls are nothing."""
    if item["type"] == "function_call":
        whole = item["status"] == "completed"
        call = (api.ToolCall(item["name"], item["arguments"]),) if whole else ()
        return api.Item(item["id"], api.Role.ASSISTANT, call)
    if item["type"] == "function_call_output":
        return api.Item(item["id"], api.Role.USER, (api.ToolResult(item["output"]),))
    texts = [part.get("text") or part.get("transcript") or "" for part in item["content"]]
    return api.Item(item["id"], api.Role(item["role"]), tuple(map(api.Text, texts)))


class WholeBench(SessionBench):
    """`SessionBench` over an engine's core. Nothing moves between the two by itself."""

    def __init__(self, reply: Callable[[str], str], **settings: Any) -> None:
        self.to_engine: list[api.Command] = []
        self.from_engine: list[api.Event] = []
        self.mirror = Mirror()
        self.told_mirror = 0
        self.voiced: list[Speak] = []
        self.reply = reply
        self.core = self._new_core()
        self.engine_runs = True
        super().__init__(**settings)
        self.deliver()

    def _new_core(self) -> Bench:
        return Bench("one two three four five", runner=FakeRunner(self.reply), blocks=512)

    def _take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SendToEngine):
                self.to_engine.append(action.command)
            elif isinstance(action, SendToTts) and isinstance(action.command, Stop):
                stopped = action.command.generation
                left = [c for c in self.voiced if stopped not in (None, c.generation)]
                self.voiced = left
            elif isinstance(action, SendToTts) and isinstance(action.command, Speak):
                self.voiced.append(action.command)
        super()._take(actions)
        for event in self.sent[self.told_mirror :]:
            self.mirror.take(event)
        self.told_mirror = len(self.sent)

    # --- the engine and the voice, as far as they are let -------------------------------------

    def pass_commands(self, count: int) -> None:
        """The engine gets the next commands."""
        for command in self.to_engine[:count] if self.engine_runs else ():
            self.core.tell(api.decode_command(api.encode(command)))
        del self.to_engine[:count]

    def engine_works(self, steps: int) -> None:
        for _ in range(steps):
            self.core.engine.step()
        self.from_engine += self.core.events
        self.core.events.clear()

    def pass_events(self, count: int) -> None:
        """The gateway gets the next events."""
        events, self.from_engine = self.from_engine[:count], self.from_engine[count:]
        for event in events:
            assert not isinstance(event, api.Failed), event
            if getattr(event, "session", "") == NAME:
                self.engine(event)

    def lose_engine(self) -> None:
        """It dies, with all that was on its way to it and from it."""
        self.core = self._new_core()
        self.engine_runs = False
        self.from_engine.clear()
        self.engine_lost()

    def have_engine(self) -> None:
        """There is one again."""
        if not self.engine_runs:
            self.engine_runs = True
            self.to_engine.clear()
            self.engine_ready()

    def speak(self, pieces: int) -> None:
        """The voice makes so many pieces: sound, or the end of a clause."""
        for _ in range(min(pieces, len(self.voiced))):
            clause = self.voiced.pop(0)
            sound = bytes(2 * SOUND_SAMPLES)
            self.voice(SynthesisedAudio(NAME, clause.generation, clause.clause, sound))
            self.voice(ClauseDone(NAME, clause.generation, clause.clause))

    def deliver(self) -> None:
        """Let everything through until nobody has anything to do."""
        moves = True
        while moves:
            self.pass_commands(len(self.to_engine))
            self.core.run()
            self.engine_works(0)
            moves = bool(self.from_engine or self.voiced)
            self.pass_events(len(self.from_engine))
            self.speak(len(self.voiced))
            moves = moves or bool(self.to_engine)

    # --- the client ----------------------------------------------------------------------------

    def append(self, ms: int) -> None:
        """Push-to-talk: so much sound, in one packet."""
        self.now_ns += ms * 1_000_000
        audio = base64.b64encode(bytes(48 * ms)).decode()
        self.client("input_audio_buffer.append", audio=audio)

    def retrieve_all(self) -> None:
        for item_id in list(self.mirror.order):
            self.client("conversation.item.retrieve", item_id=item_id)

    def next_prompt(self) -> str:
        """What an answer would follow now in the engine."""
        return _letters(self.core.engine.sessions[NAME].conversation.prompt().ids)

    def wanted_prompt(self) -> str:
        """The same of a conversation that holds what the client was told, and nothing else."""
        session = self.core.engine.sessions[NAME]
        other = Bench()
        opened = api.Open("other", self.session.describe()["instructions"])
        other.tell(
            api.Open(
                "other",
                opened.instructions,
                self.mirror.for_engine(),
                tools=session.conversation.tools,
                blind=_blind(self.told),
            )
        )
        return _letters(other.engine.sessions["other"].conversation.prompt().ids)


def _blind(told: list[api.Command]) -> str:
    return next(c.blind for c in reversed(told) if isinstance(c, api.Open | api.Instruct))


def _letters(ids: Any) -> str:
    names = {256: "<S>", 257: "\n<U>", 258: "</U>", 259: "\n<A>", 260: "</>"}
    return "".join(names.get(t, chr(t) if t < 256 else "#") for t in ids)
