"""The endpoint policy: a pause grows from nothing to a hush to an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.endpoint import EAGERNESS_SILENCE_MS, FixedSilence, Pause, Verdict, semantic
from gateway.media.timebase import hear_samples


def after(silence_ms: int, policy: FixedSilence) -> Verdict:
    return policy.judge(Pause(hear_samples(silence_ms), hear_samples(1000)))


def test_fixed_silence_hushes_then_ends() -> None:
    """Nothing below 200 ms, a hush from there, the end at 500 ms exactly."""
    policy = FixedSilence(silence_ms=500, hush_ms=200)
    verdicts = [after(ms, policy) for ms in (0, 199, 200, 499, 500, 5000)]
    wait, hush, end = Verdict.WAIT, Verdict.HUSH, Verdict.END
    assert verdicts == [wait, wait, hush, hush, end, end]


def test_silence_shorter_than_the_hush_ends_at_once() -> None:
    """With 100 ms of silence there is no hush before the end."""
    assert after(100, FixedSilence(silence_ms=100)) is Verdict.END


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 4000), st.integers(0, 500))
def test_a_longer_pause_is_never_less_final(silence: int, hush: int, pause: int, more: int) -> None:
    """Verdicts only grow with the pause, whatever the two lengths."""
    order = list(Verdict)
    policy = FixedSilence(silence, hush)
    shorter, longer = after(pause, policy), after(pause + more, policy)
    assert order.index(longer) >= order.index(shorter)


def test_eagerness_orders_the_silences() -> None:
    """The more eager, the sooner; auto is medium."""
    high, medium, low = (semantic(e).silence_ms for e in ("high", "medium", "low"))
    assert high < medium < low
    assert semantic("auto") == semantic("medium")
    assert semantic("low").longest_silence_ms == EAGERNESS_SILENCE_MS["low"]


def test_bad_settings_are_named() -> None:
    """Negative lengths and unknown eagerness say what was expected."""
    with pytest.raises(ValueError, match="silence_ms must be 0 or more, got -1"):
        FixedSilence(silence_ms=-1)
    with pytest.raises(ValueError, match="low, medium, auto, high, got 'very'"):
        semantic("very")
