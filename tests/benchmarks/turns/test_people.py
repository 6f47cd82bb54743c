"""Turns as people speak them: which half says what, and how a turn is put together."""

from __future__ import annotations

import itertools

import numpy as np

from headstart.benchmarks.inputs.voices import Line, Samples
from headstart.benchmarks.turns import people
from headstart.benchmarks.turns.people import CHOOSE, HALVES, REPORT, VOICES
from headstart.gateway.audio.clock import CLIENT_RATE_HZ as RATE_HZ

TONE = (12_000 * np.sin(np.arange(RATE_HZ // 2) / 10)).astype(np.int16)


def say(line: Line) -> Samples:
    """Half a second of tone for any words, with quiet around it."""
    quiet = np.zeros(RATE_HZ // 10, np.int16)
    return np.concatenate([quiet, TONE, quiet])


def test_the_halves_have_no_voice_and_no_words_in_common() -> None:
    """What is chosen on one is new to the other. Digits and single words may recur."""
    pairs = list(itertools.combinations(HALVES, 2))
    assert not any(set(VOICES[one]) & set(VOICES[other]) for one, other in pairs)
    words = {
        half: {
            part.lower()
            for script in people.scripts(half)
            for part in (script.text, *script.parts)
            if len(part.split()) > 3
        }
        for half in HALVES
    }
    assert not any(words[one] & words[other] for one, other in pairs)


def test_half_of_each_voices_turns_are_plain() -> None:
    """And every kind of thinking aloud occurs in each half."""
    for half in HALVES:
        plans = people.planned(half)
        for voice in VOICES[half]:
            plain = [p.script.kind == people.PLAIN for p in plans if p.voice == voice]
            assert sum(plain) == len(plain) / 2 == people.TURNS_OF_A_VOICE / 2
        assert {p.script.kind for p in plans} == {s.kind for s in people.scripts(half)}


def test_plans_are_the_same_every_time() -> None:
    """A record made yesterday fits today's plans."""
    assert people.planned(REPORT) == people.planned(REPORT)
    keys = [plan.key for half in HALVES for plan in people.planned(half)]
    assert len(set(keys)) == len(keys)


def test_a_turn_has_its_pauses_and_no_quiet_of_the_voices_own() -> None:
    """Parts are trimmed, so the pauses are as long as planned."""
    plan = next(p for p in people.planned(CHOOSE) if len(p.pauses_ms) == 2)
    turn = people.speak(plan, say)
    parts_ms = 3 * len(TONE) * 1000 / RATE_HZ
    length_ms = (turn.end - turn.first) * 1000 / RATE_HZ
    assert abs(length_ms - parts_ms - sum(plan.pauses_ms)) <= 60
    assert turn.first == people.LEAD_MS * RATE_HZ / 1000
    assert len(turn.pcm) - turn.end == people.TAIL_MS * RATE_HZ / 1000


def test_noise_is_over_a_part_of_the_turns_and_lies_under_the_voice() -> None:
    """It goes on behind the last word."""
    turns = [people.speak(plan, say) for plan in people.planned(REPORT)]
    noisy = [turn for turn in turns if turn.noise]
    assert 0.1 < len(noisy) / len(turns) < 0.4
    pink = next(turn for turn in noisy if turn.noise == "pink noise")
    behind = pink.pcm[pink.end :].astype(np.float64)
    level = float(np.sqrt(np.mean(behind**2)))
    voice = float(np.sqrt(np.mean(TONE.astype(np.float64) ** 2)))
    assert 15 < 20 * np.log10(voice / level) < 21
