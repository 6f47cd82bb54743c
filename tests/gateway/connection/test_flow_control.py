"""gateway.connection.flow_control: credit is taken for what was sent, and comes back whatever
happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.connection.flow_control import (
    AUDIO_BEHIND_SAMPLES,
    PICTURES_BEHIND_BYTES,
    FlowControl,
)

TURNS, CLIPS = (1, 2), ("a", "b")
HALF = bytes(AUDIO_BEHIND_SAMPLES)  # of what may be out, as s16
ITEM = api.Item(
    "i", api.Role.USER, (api.Text("?"), api.Image(1, 1, bytes(PICTURES_BEHIND_BYTES // 2)))
)


def audio(turn: int, samples: int) -> api.Audio:
    return api.Audio("s", api.TurnRef(turn), 0, bytes(2 * samples), 0)


def chunk(turn: int, samples: int) -> api.Chunk:
    return api.Chunk("s", api.TurnRef(turn), 0, samples, {}, 1.0, 0, 0)


class Model:
    """What is out, kept in the plainest way: one list of sendings of this engine's life."""

    def __init__(self) -> None:
        self.out: list[list[Any]] = []  # [kind, part, amount]

    def sent(self, kind: str, part: object, amount: int) -> None:
        self.out.append([kind, part, amount])

    def acknowledged(self, kind: str, part: object, amount: int) -> None:
        for sending in self.out:
            if sending[:2] == [kind, part]:
                taken = min(amount, sending[2])
                sending[2], amount = sending[2] - taken, amount - taken

    def settled(self, kind: str, of: type) -> None:
        self.out = [s for s in self.out if s[0] != kind or not isinstance(s[1], of)]

    def outstanding(self, kind: str) -> int:
        return sum(amount for a_kind, _, amount in self.out if a_kind == kind)


AMOUNTS = st.sampled_from([1, 1000, AUDIO_BEHIND_SAMPLES // 2, AUDIO_BEHIND_SAMPLES + 1])
STEPS = st.one_of(
    st.tuples(st.just("audio"), st.sampled_from(TURNS), AMOUNTS, st.booleans()),
    st.tuples(st.just("clip"), st.sampled_from(CLIPS), AMOUNTS, st.booleans()),
    st.tuples(st.just("pictures"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("chunk"), st.sampled_from(TURNS), AMOUNTS),
    st.tuples(st.just("clip_heard"), st.sampled_from(CLIPS), AMOUNTS),
    st.tuples(st.just("looked"), st.integers(1, 2 * PICTURES_BEHIND_BYTES)),
    st.tuples(st.sampled_from(["heard", "dropped"]), st.sampled_from(TURNS)),
    st.tuples(st.sampled_from(["clip_failed", "speech_failed", "lost", "ready"])),
)


def apply(step: Any, flow: FlowControl, model: Model) -> None:
    match step:
        case ("audio", turn, samples, sent):
            flow.command_sent(audio(turn, samples), was_sent=sent)
            model.sent("audio", turn, samples * sent)
        case ("clip", name, samples, sent):
            flow.command_sent(api.Clip("s", name, bytes(2 * samples)), was_sent=sent)
            model.sent("audio", name, samples * sent)
        case ("pictures", count, sent):
            respond = api.Respond("s", 1, "a", api.Sampling(), items=(ITEM,) * count)
            flow.command_sent(respond, was_sent=sent)
            model.sent("pictures", None, count * (PICTURES_BEHIND_BYTES // 2) * sent)
        case ("chunk", turn, samples):
            flow.engine_event(chunk(turn, samples))
            model.acknowledged("audio", turn, samples)
        case ("clip_heard", name, samples):
            flow.engine_event(api.ClipHeard("s", name, samples))
            model.acknowledged("audio", name, samples)
        case ("looked", size_bytes):
            flow.engine_event(api.ImagesConsumed("s", size_bytes))
            model.acknowledged("pictures", None, size_bytes)
        case ("heard", turn):
            flow.engine_event(api.Heard("s", api.TurnRef(turn), "i", "words", 1))
            model.acknowledged("audio", turn, 1 << 62)
        case ("dropped", turn):
            flow.command_sent(api.DropSpeech("s", api.TurnRef(turn)), was_sent=True)
            model.acknowledged("audio", turn, 1 << 62)
        case ("clip_failed",):
            flow.engine_event(api.Failed("s", "clip", "session_overloaded", "…"))
            model.settled("audio", str)
        case ("speech_failed",):
            flow.engine_event(api.Failed("s", "end_speech", "unknown_session", "…"))
            model.settled("audio", int)
        case _:
            flow.reset()
            model.out.clear()


@given(st.lists(STEPS, max_size=40))
def test_outstanding_is_what_was_sent_and_not_acknowledged(steps: list[Any]) -> None:
    """Of this engine's life, in any order of told, refused, acknowledged, lost and ready; never
    negative; and whoever waits is woken by the very step that makes room."""
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    flow, model = FlowControl(wake), Model()
    for step in steps:
        waited, before = flow.must_wait, woken
        apply(step, flow, model)
        assert flow.audio.outstanding == model.outstanding("audio") >= 0
        assert flow.pictures.outstanding == model.outstanding("pictures") >= 0
        spent = flow.audio.outstanding > AUDIO_BEHIND_SAMPLES
        assert flow.audio.is_spent == spent
        assert flow.must_wait == (spent or flow.pictures.outstanding > PICTURES_BEHIND_BYTES)
        assert woken - before == (waited and not flow.must_wait)


def test_what_was_never_sent_takes_no_credit() -> None:
    """However much is said while there is no engine: the first sound for a new one is let through.
    The same for pictures."""
    flow = FlowControl()
    for _ in range(100):
        flow.command_sent(api.Audio("s", api.TurnRef(1), 0, HALF, 0), was_sent=False)
        flow.command_sent(api.AddItem("s", ITEM), was_sent=False)
    assert not flow.must_wait


def test_pictures_of_every_sort_count_and_words_do_not() -> None:
    """Of items, of input out of band and of a camera."""
    flow = FlowControl()
    flow.command_sent(api.AddItem("s", ITEM), was_sent=True)
    flow.command_sent(api.Respond("s", 1, "a", api.Sampling(), items=(ITEM,)), was_sent=True)
    flow.command_sent(
        api.AddItem("s", api.Item("i", api.Role.USER, (api.Text("x"),))), was_sent=True
    )
    flow.engine_event(api.Pressure("s", api.Level.CALM))
    waits = [flow.must_wait]
    flow.command_sent(api.Frame("s", 0, api.Image(1, 1, bytes(3))), was_sent=True)
    waits.append(flow.must_wait)
    flow.engine_event(api.ImagesConsumed("s", 3))
    assert [*waits, flow.must_wait] == [False, True, False]


def test_an_old_utterances_words_do_not_settle_the_next_ones_sound() -> None:
    """They come while the next person speaks already."""
    flow = FlowControl()
    flow.command_sent(audio(1, 1000), was_sent=True)
    flow.command_sent(audio(2, 500), was_sent=True)
    flow.engine_event(api.Heard("s", api.TurnRef(1), "item", "words", 1))
    assert flow.audio.outstanding == 500
