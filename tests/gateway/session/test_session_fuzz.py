"""A session under mutants of what real clients send. Bounded: so many events, of fixed seeds."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.gateway.protocol.samples import FULL, MINIMAL, recorded
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

MUTANTS = 3000
LETTERS = '"\\{}[]:,=+-/09eEtfn \n\x00é😀'
VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 2**63, "", "x", "realtime", "pcm16", [], {}, [[]],
    {"type": "realtime"}, {"type": "message"}, ["audio"], ["text"], "A" * 5000, list(range(300)),
]  # fmt: skip


def seeds() -> list[dict[str, Any]]:
    return MINIMAL + FULL + [json.loads(text) for _, text in recorded()]


def changed_letters(chance: random.Random, event: dict[str, Any]) -> str:
    """Its text with a few letters changed, cut out or doubled, or an end torn off."""
    text = list(json.dumps(event))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(text))
        text[at] = chance.choice(["", text[at] * 2, chance.choice(LETTERS)])
    return "".join(text)[: chance.choice([None, None, None, len(text) // 2])]


def changed_values(chance: random.Random, event: dict[str, Any]) -> str:
    """The same JSON with values put in other places: valid letters, wrong sense."""
    copy = json.loads(json.dumps(event))
    for _ in range(chance.randint(1, 3)):
        node: Any = copy
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(node[key], (dict, list)) and node[key] and chance.random() < 0.7:
                node = node[key]
                continue
            if isinstance(node, dict) and chance.random() < 0.2:
                del node[key]
            else:
                node[key] = json.loads(json.dumps(chance.choice(VALUES)))
            break
    return json.dumps(copy)


@pytest.mark.parametrize("mutate", [changed_letters, changed_values])
@pytest.mark.parametrize("seed", [1, 2])
def test_mutants_end_no_session(mutate: Any, seed: int) -> None:
    """No exception, whatever comes; a turn after it is heard and answered as ever. (An event that
    ends the session by the API's rules, as a beta client's does, gets a new one.)"""
    chance, events = random.Random(seed), seeds()
    bench = SessionBench()
    for _ in range(MUTANTS):
        bench.raw(mutate(chance, chance.choice(events)))
        assert all(event["type"] for event in bench.sent)
        bench.clear()
        if bench.hangups:
            bench = SessionBench()
    bench.client("response.cancel")
    bench.update(audio={"input": {"turn_detection": {"type": "server_vad"}}})
    bench.client("input_audio_buffer.clear")
    bench.clear()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1500))
    assert "input_audio_buffer.committed" in bench.types()
