"""Endpoint policies: a pause grows from nothing to a hush to an end, sooner or later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.audio.clock import ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    ADAPTIVE_LEAST_MS,
    ADAPTIVE_MOST_MS,
    ASK_AGAIN_MS,
    EAGERNESS,
    AdaptiveSilence,
    EndpointPolicy,
    EndpointVerdict,
    FixedSilence,
    Pause,
    PauseStatistics,
    SemanticSilence,
    semantic,
)

OVER, UNSURE, BREAKS_OFF = 0.9, 0.05, 1e-7


def after(
    silence_ms: int, policy: EndpointPolicy, probability: float | None = None, checks: int = 1
) -> EndpointVerdict:
    pause = Pause(ms_to_engine_samples(silence_ms), ms_to_engine_samples(1000), probability, checks)
    return policy.judge(pause)


def paced(*pauses_ms: int) -> PauseStatistics:
    pace = PauseStatistics()
    for pause_ms in pauses_ms:
        pace.learn(pause_ms)
    return pace


def test_fixed_silence_hushes_then_ends() -> None:
    """Nothing below 200 ms, a hush from there, the end at 500 ms exactly."""
    policy = FixedSilence(silence_ms=500, hush_ms=200)
    verdicts = [after(ms, policy) for ms in (0, 199, 200, 499, 500, 5000)]
    wait, hush, end = EndpointVerdict.WAIT, EndpointVerdict.HUSH, EndpointVerdict.END
    assert verdicts == [wait, wait, hush, hush, end, end]


def test_silence_shorter_than_the_hush_ends_at_once() -> None:
    """With 100 ms of silence there is no hush before the end."""
    assert after(100, FixedSilence(silence_ms=100)) is EndpointVerdict.END


def policies(silence_ms: int, hush_ms: int) -> list[EndpointPolicy]:
    adaptive = AdaptiveSilence(paced(900), silence_ms, hush_ms)
    return [FixedSilence(silence_ms, hush_ms), adaptive, SemanticSilence(adaptive, 4000)]


@given(
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(0, 4000),
    st.integers(0, 500),
    st.sampled_from([None, OVER, UNSURE, BREAKS_OFF]),
)
def test_a_longer_pause_is_never_less_final(
    silence_ms: int, hush_ms: int, pause_ms: int, more_ms: int, probability: float | None
) -> None:
    """Verdicts only grow with the pause, whatever the policy, its lengths and the model's word,
    and no pause outlasts what the policy says."""
    order = list(EndpointVerdict)
    for policy in policies(silence_ms, hush_ms):
        shorter = after(pause_ms, policy, probability)
        longer = after(pause_ms + more_ms, policy, probability)
        assert order.index(longer) >= order.index(shorter)
        assert after(policy.longest_silence_ms, policy, probability) is EndpointVerdict.END


def test_the_silence_follows_the_speaker() -> None:
    """Twice the pauses, in time twice the silence; a quick speaker's is shorter; bounds hold."""
    typical = AdaptiveSilence(PauseStatistics(), 500)
    assert typical.silence_ms == 500
    assert AdaptiveSilence(paced(*[900] * 40), 500).silence_ms == pytest.approx(1000, abs=60)
    assert AdaptiveSilence(paced(*[300] * 40), 500).silence_ms < 400
    assert AdaptiveSilence(paced(*[9000] * 99), 500).silence_ms == ADAPTIVE_MOST_MS
    assert AdaptiveSilence(paced(*[1] * 99), 500).silence_ms == ADAPTIVE_LEAST_MS


def test_it_learns_by_being_told_and_not_from_words_themselves() -> None:
    """Silence within a word, shorter than a hush, says nothing about pauses."""
    pace = PauseStatistics()
    policy = AdaptiveSilence(pace, 500)
    policy.continued_after(ms_to_engine_samples(199))
    assert pace.mean_ms == pytest.approx(450)
    policy.continued_after(ms_to_engine_samples(900))
    assert policy.silence_ms > 500


def test_a_changed_habit_is_learnt_too() -> None:
    """Old pauses fade: after a hundred of one length, thirty of another count most."""
    pace = paced(*[300] * 100, *[1000] * 30)
    assert pace.mean_ms > 800


def test_the_models_word_lengthens() -> None:
    """Broken off waits longer; not knowing is no reason to be quick."""
    policy = semantic("medium")
    over, unsure, broken = (policy.silence_ms(p) for p in (OVER, UNSURE, BREAKS_OFF))
    assert over == unsure < broken <= EAGERNESS["medium"].most_ms
    assert over == EAGERNESS["medium"].silence_ms
    assert semantic("high").silence_ms(None) >= 500 > semantic("high").silence_ms(OVER)


def test_a_message_that_breaks_off_is_looked_at_again() -> None:
    """Once, after more silence: ears may tell only then that a sentence is over."""
    policy = semantic("medium")
    assert after(ASK_AGAIN_MS - 20, policy, BREAKS_OFF) is EndpointVerdict.HUSH
    assert after(ASK_AGAIN_MS, policy, BREAKS_OFF) is EndpointVerdict.RECHECK
    assert after(ASK_AGAIN_MS + 20, policy, BREAKS_OFF, checks=2) is EndpointVerdict.HUSH
    assert after(ASK_AGAIN_MS, policy, OVER) is not EndpointVerdict.RECHECK


def test_eagerness_orders_the_silences() -> None:
    """The more eager, the sooner, whatever the model says; auto is medium; the longest waits are
    the protocol's."""
    for probability in (None, OVER, UNSURE, BREAKS_OFF):
        low, medium, high = (semantic(e).silence_ms(probability) for e in ("low", "medium", "high"))
        assert high <= medium <= low
    assert EAGERNESS["auto"] == EAGERNESS["medium"]
    assert [semantic(e).longest_silence_ms for e in ("low", "medium", "high")] == [8000, 4000, 2000]


def test_bad_settings_are_named() -> None:
    """Negative lengths and unknown eagerness say what was expected."""
    with pytest.raises(ValueError, match="silence_ms must be 0 or more, got -1"):
        FixedSilence(silence_ms=-1)
    with pytest.raises(ValueError, match="hush_ms must be 0 or more, got -2"):
        AdaptiveSilence(PauseStatistics(), 500, -2)
    with pytest.raises(ValueError, match="low, medium, auto, high, got 'very'"):
        semantic("very")
