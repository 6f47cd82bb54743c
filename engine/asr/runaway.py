"""When a decoder repeats itself or says too much. No torch here.

It repeats a phrase of the same sound (`loop_start`), or says more than a person can in that time
(`token_limit`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LoopSettings:
    """When the same tokens again are a loop, not a person repeating himself.

    Whoever repeats himself moves on in time: at least `least_advance_s` per token of the phrase.
    Where nothing is known of the time, `blind_tokens` repeated tokens make a loop.
    """

    longest_phrase: int = 40
    least_tokens: int = 3
    least_advance_s: float = 0.08
    blind_tokens: int = 12


def loop_start(
    tokens: Sequence[int], places_s: Sequence[float] = (), settings: LoopSettings | None = None
) -> int | None:
    """Where, at the very end, tokens begin that only repeat the ones before them; or None.

    `places_s`: where in the sound each token was heard; empty when not known. A phrase said again
    of the *same* sound is a loop at once: a decoder in a loop attends to the same place again.
    """
    rule = settings or LoopSettings()
    for period in range(1, min(rule.longest_phrase, len(tokens) - 1) + 1):
        start = len(tokens)
        while start > period and tokens[start - 1] == tokens[start - 1 - period]:
            start -= 1
        repeated = len(tokens) - start
        if repeated < rule.least_tokens:
            continue
        if not places_s:
            if repeated >= max(rule.blind_tokens, 2 * period):
                return start
            continue
        moves_s = [places_s[i] - places_s[i - period] for i in range(period, len(tokens))]
        still_s = period * rule.least_advance_s
        if sum(moves_s[start - period :]) / repeated >= still_s:
            continue
        # The repeat may begin in other words or letter case ("the …, The …"): same sound, too.
        while start > period and moves_s[start - 1 - period] < still_s:
            start -= 1
        return start
    return None


@dataclass(frozen=True)
class RateSettings:
    """Fast talkers reach 7 tokens a second; the slack serves very short sounds."""

    tokens_per_second: float = 9.0
    slack_tokens: int = 6


def token_limit(seconds: float, settings: RateSettings | None = None) -> int:
    """The most tokens that `seconds` of speech can hold."""
    rule = settings or RateSettings()
    return math.ceil(seconds * rule.tokens_per_second) + rule.slack_tokens
