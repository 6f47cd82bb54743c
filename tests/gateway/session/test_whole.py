"""What the model reads next is what the client was told, in whatever order things were done."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from tests.gateway.session_bench import Json, clip_pcm, silence_pcm
from tests.gateway.whole_bench import EAGER, PTT, VAD, WholeBench

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'
ANSWERS = ("Yes, it is so. And more. And the end of it.", CALL, "Let me see. " + CALL, CALL + CALL)
KINDS = (
    *("item", "item", "put", "delete", "delete", "delete newest", "truncate", "truncate"),
    *("respond", "respond", "own input", "aside", "cancel", "speak up", "clear", "output"),
    *("to engine", "to engine", "work", "work", "to client", "to client", "voice", "all"),
    *("lose", "have", "grow", "grow", "grow", "race", "race"),
    *("same name", "same name"),
)
ACTIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40)), max_size=40)
ALOUD = (*("talk" if kind == "speak up" else kind for kind in KINDS), "talk", "quiet", "quiet")
TALKS = st.lists(st.tuples(st.sampled_from(ALOUD), st.integers(0, 40)), max_size=30)
PAUSING = ("talk", "quiet", "hesitate", "hesitate", "hesitate", "all", "to client", "work")
HESITANT = st.lists(
    st.tuples(st.sampled_from((*ALOUD, *PAUSING * 4)), st.integers(0, 40)), max_size=30
)


class Client:
    """Carries actions out on a bench as a client, an engine and a voice might."""

    def __init__(self, bench: WholeBench, call: bool) -> None:
        self.bench = bench
        self.numbers = itertools.count(1)
        self.call = call

    def act(self, kind: str, number: int) -> None:
        getattr(self, "_" + kind.replace(" ", "_"))(number)

    def _pick(self, number: int) -> str | None:
        order = self.bench.mirror.order
        return order[number % len(order)] if order else None

    def _create(self, item: dict[str, Any], previous: str | None = None) -> None:
        self.bench.client("conversation.item.create", item=item, previous_item_id=previous)

    def _message(self) -> dict[str, Any]:
        number = next(self.numbers)
        text = [{"type": "input_text", "text": f"Q{number}"}]
        return {"id": f"m{number}", "type": "message", "role": "user", "content": text}

    def _item(self, number: int) -> None:
        self._create(self._message())

    def _put(self, number: int) -> None:
        self._create(self._message(), self._pick(number) if number else "root")

    def _same_name(self, number: int) -> None:
        """An item is created with an id that the server has used, or that the client has deleted:
        of another type, as often as not."""
        known = sorted(self.bench.mirror.named)
        if not known:
            return
        item_id = known[number % len(known)]
        if number % 3 == 0:
            item_id = api.call_item_id(item_id, number % 2)
        item = self._message() | {"id": item_id}
        if number % 2:
            item = {"type": "function_call", "name": "f", "arguments": "{}", "id": item_id}
        self._create(item)

    def _output(self, number: int) -> None:
        calls = [i for i in self.bench.mirror.items.values() if i["type"] == "function_call"]
        if calls:
            call_id = calls[number % len(calls)]["call_id"]
            output = {"type": "function_call_output", "call_id": call_id, "output": "42"}
            self._create(output)

    def _delete(self, number: int) -> None:
        if (item_id := self._pick(number)) is not None:
            self.bench.client("conversation.item.delete", item_id=item_id)

    def _delete_newest(self, number: int) -> None:
        self._delete(-1)

    def _truncate(self, number: int) -> None:
        spoken = [
            item_id
            for item_id in self.bench.mirror.order
            if self.bench.mirror.items[item_id].get("role") == "assistant"
        ]
        if spoken:
            item_id = spoken[number % len(spoken)]
            self.bench.client(
                "conversation.item.truncate",
                item_id=item_id,
                content_index=0,
                audio_end_ms=number * 7,
            )

    def _respond(self, number: int) -> None:
        self.bench.client("response.create")

    def _grow(self, number: int) -> None:
        """An answer is asked for, and gets so far."""
        self._respond(0)
        self._to_engine(len(self.bench.to_engine))
        self._work(number)
        self._to_client(len(self.bench.from_engine))

    def _race(self, number: int) -> None:
        """While it is cancelled or deleted, more of an answer is on its way to the client."""
        self._to_engine(len(self.bench.to_engine))
        self._work(number * 2)
        (self._cancel, self._delete_newest)[number % 2](0)

    def _own_input(self, number: int) -> None:
        self.bench.client("response.create", response={"input": [self._message()]})

    def _aside(self, number: int) -> None:
        self.bench.client("response.create", response={"conversation": "none"})

    def _cancel(self, number: int) -> None:
        self.bench.client("response.cancel")

    def _speak_up(self, number: int) -> None:
        """Somebody says a few words by push-to-talk."""
        self.bench.append(250 + 50 * number)
        if number % 3:
            self.bench.client("input_audio_buffer.commit")

    def _talk(self, number: int) -> None:
        """Somebody speaks, for so long, and is silent for a while."""
        sound = clip_pcm("capital.wav")[: 48 * (600 + 30 * number)] + silence_pcm(20 * number)
        self.bench.hear(sound, 4_800)

    def _hesitate(self, number: int) -> None:
        """Somebody says something that is answered, as far as it gets, and goes on."""
        self._talk(number)
        self.bench.hear(silence_pcm(700), 4_800)
        self._to_engine(len(self.bench.to_engine))
        self._work(number)
        self._to_client(number)
        self._voice(number)
        self.bench.hear(clip_pcm("capital.wav")[: 48 * (400 + 20 * number)], 4_800)
        self._all(0)
        self.bench.hear(silence_pcm(200 + 30 * number), 4_800)

    def _quiet(self, number: int) -> None:
        self.bench.hear(silence_pcm(700), 4_800)
        self.bench.tick(2_500)

    def _clear(self, number: int) -> None:
        self.bench.client("input_audio_buffer.clear")

    def _to_engine(self, number: int) -> None:
        self.bench.pass_commands(number)

    def _work(self, number: int) -> None:
        self.bench.engine_works(number)

    def _to_client(self, number: int) -> None:
        self.bench.pass_events(number)

    def _voice(self, number: int) -> None:
        self.bench.speak(1 + number % 3)

    def _lose(self, number: int) -> None:
        if number % 4 == 0 and self.bench.engine_runs:
            self.bench.lose_engine()

    def _have(self, number: int) -> None:
        self.bench.have_engine()

    def _all(self, number: int) -> None:
        self.bench.deliver()


def lived(
    actions: list[tuple[str, int]], answer: str, *, speaks: bool, detection: Json = PTT
) -> WholeBench:
    """A session in which that was done, up to when nothing is left to do."""
    bench = WholeBench(lambda _: answer, speaks=speaks, max_sentences=0)
    bench.update(**detection, tools=[TOOL])
    client = Client(bench, True)
    for kind, number in actions:
        client.act(kind, number)
    client.act("clear", 0)
    client.act("have", 0)
    bench.deliver()
    bench.tick(2_500)  # function calls of an early answer are held back for a while
    bench.deliver()
    return bench


@settings(max_examples=250, deadline=None)
@given(ACTIONS, st.sampled_from(ANSWERS), st.booleans())
def test_the_next_prompt_is_what_the_client_was_told(
    actions: list[tuple[str, int]], answer: str, speaks: bool
) -> None:
    """Items created, deleted and truncated, answers asked for and cancelled, words said, in any
    order, with the engine and the voice at any point of their work: what the model reads next is
    the conversation that the client knows. No event names an item that is deleted or that was
    never told of, and all that began has ended."""
    holds(lived(actions, answer, speaks=speaks))


@settings(max_examples=60, deadline=None)
@given(TALKS, st.sampled_from(ANSWERS), st.booleans())
def test_the_next_prompt_is_what_was_said(
    actions: list[tuple[str, int]], answer: str, speaks: bool
) -> None:
    """The same where turns are detected, answered and interrupted by themselves."""
    holds(lived(actions, answer, speaks=speaks, detection=VAD))


@settings(max_examples=100, deadline=None)
@given(HESITANT, st.sampled_from(ANSWERS), st.booleans())
def test_the_next_prompt_is_what_was_said_in_the_end(
    actions: list[tuple[str, int]], answer: str, speaks: bool
) -> None:
    """The same where turns end early and are taken back."""
    holds(lived(actions, answer, speaks=speaks, detection=EAGER))


def holds(bench: WholeBench) -> None:
    """What the model reads next is what the client was told."""
    bench.mirror.settled()
    told = {item_id: bench.mirror.items[item_id] for item_id in bench.mirror.order}
    bench.retrieve_all()
    for item_id, item in told.items():
        if item_id not in bench.mirror.cut:
            assert bench.mirror.items[item_id] == item
    assert bench.next_prompt() == bench.wanted_prompt()
    server_faults = [e for e in bench.mirror.errors if e["type"] == "server_error"]
    assert all(e["code"] == "rate_limit_exceeded" for e in server_faults)


def test_all_words_said_over_an_answer_are_read_in_order() -> None:
    """The engine is so far behind that somebody speaks over its answer three times before it comes
    to the first: each is a message, with its words, once, and the newest is answered."""
    bench = WholeBench(lambda _: ANSWERS[0], speaks=True, max_sentences=0)
    bench.update(**VAD)
    client = Client(bench, True)
    client.act("grow", 5)
    for _ in range(3):
        client.act("talk", 40)
        bench.hear(silence_pcm(700), 4_800)
    bench.deliver()
    holds(bench)
    roles = [bench.mirror.items[item_id]["role"] for item_id in bench.mirror.order]
    assert roles == ["assistant", "user", "user", "user", "assistant"]
    said = [bench.mirror.items[item_id]["content"][0] for item_id in bench.mirror.order[1:4]]
    assert [part["transcript"] for part in said] == ["one two three four five"] * 3
