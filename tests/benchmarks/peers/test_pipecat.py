"""headstart.benchmarks.peers.pipecat: what the pipeline's lines and sound mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headstart.benchmarks.peers.clips import Clip, Plan
from headstart.benchmarks.peers.pipecat import OUT_HZ, Log, _Listeners
from headstart.benchmarks.peers.score import ASSISTANT, USER

PLAN = Plan(0, "inside", "joe", "How old is the universe?", "", pause_ms=800)
CLIP = Clip(PLAN, np.zeros(16_000, np.int16))


def line(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "at_s": at_s, **fields}


def request(at_s: float, *messages: tuple[str, Any]) -> dict[str, Any]:
    read = [{"role": role, "content": content} for role, content in messages]
    return line("request", at_s, messages=read)


def pcm(seconds: float, level: int = 6000) -> bytes:
    return np.full(round(seconds * OUT_HZ), level, np.int16).tobytes()


def test_each_request_is_an_answer() -> None:
    """Tokens and sound belong to the newest one; lines may be read late."""
    log = Log(
        lines=[
            line("heard", 8.0, text=" How old"),
            request(8.1, (USER, "How old")),
            line("token", 8.3, text=""),
            line("token", 8.4, text="Ten"),
            request(10.3, (USER, "How old"), (ASSISTANT, "Ten"), (USER, "is the universe?")),
            line("token", 10.6, text="Very"),
            line("token", 10.7, text=" old."),
            line("heard", 10.2, text="is the universe? "),
        ],
        sound=[(8.6, pcm(0.4)), (9.0, pcm(0.4)), (9.3, pcm(0.4)), (10.9, pcm(0.2, level=0))],
        cleared_at_s=[9.2],
    )
    log.sound.append((11.0, pcm(0.5)))
    found = log.conversation(CLIP, 10.0)
    assert found.heard == ["How old", "is the universe?"]
    early, last = found.answers
    assert (early.text, early.first_token_at_s, early.first_sound_at_s) == ("Ten", 8.4, 8.6)
    assert early.heard_before_end_s == pytest.approx(0.6)
    assert last.read == [(USER, "How old"), (ASSISTANT, "Ten"), (USER, "is the universe?")]
    assert (last.text, last.first_token_at_s) == ("Very old.", 10.6)
    assert last.first_sound_at_s == pytest.approx(11.1)
    assert last.heard_before_end_s == 0.0


def test_messages_in_parts() -> None:
    """Are joined; one without content is empty."""
    log = Log(lines=[request(1.0, (USER, [{"type": "text", "text": "a"}, {"text": "b"}]))])
    log.lines.append(request(2.0, (USER, None)))
    first, second = log.conversation(CLIP, 10.0).answers
    assert first.read == [(USER, "a b")]
    assert second.read == [(USER, "")]


def test_its_own_metrics_are_kept() -> None:
    """A cross-check of ours."""
    log = Log(
        lines=[
            line("ttfb", 1.0, processor="WhisperSTTService#0", value_ms=301.23),
            line("ttfb", 1.0, processor="SomethingElse#0", value_ms=1.0),
            line("user_bot_latency", 2.0, value_ms=901.0),
            line("smart_turn", 0.9, complete=True, probability=0.98765),
        ]
    )
    assert log.conversation(CLIP, 10.0).own_ms == {
        "ttfb_WhisperSTTService": [301.2],
        "first_sound": [901.0],
        "smart_turn": [0.988],
    }


def test_when_a_conversation_is_over() -> None:
    """When the newest request has been answered aloud, and nothing has come for a while."""
    log = Log(lines=[request(1.0, (USER, "a"))])
    assert not log.settled(10.0)
    log.sound.append((2.0, pcm(0.1)))
    assert not log.settled(2.5)
    assert log.settled(3.0)
    log.lines.append(request(2.9, (USER, "b")))
    assert not log.settled(10.0)


def test_lines_go_to_the_clip_that_is_spoken() -> None:
    """Before the first one they tell only whether the pipeline is ready; what else is printed is
    no line of it."""
    heard = _Listeners()
    for text in ('{"kind": "heard", "at_s": 1, "text": "a"}', "Downloading", "[1]", '"ready"'):
        heard.line(text)
    ready = [heard.ready]
    heard.line('{"kind": "ready", "at_s": 2}')
    assert [*ready, heard.ready] == [False, True]
    heard.log = Log()
    heard.line('{"kind": "heard", "at_s": 3, "text": "b"}')
    assert [each["text"] for each in heard.log.lines] == ["b"]
