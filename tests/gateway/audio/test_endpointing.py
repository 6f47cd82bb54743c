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
    CAUTION_MOST,
    EAGERNESS,
    AdaptiveSilence,
    EagerSettings,
    EagerSilence,
    EndpointPolicy,
    EndpointVerdict,
    FixedSilence,
    Pause,
    PauseStatistics,
    SemanticSilence,
    eager,
    semantic,
)

OVER, LIKELY, UNSURE, BREAKS_OFF = 0.999, 0.85, 0.05, 1e-7
WINDOW_MS = 20


def after(
    silence_ms: int,
    policy: EndpointPolicy,
    probability: float | None = None,
    checks: int = 1,
    words: str = "",
) -> EndpointVerdict:
    silence, speech = ms_to_engine_samples(silence_ms), ms_to_engine_samples(1000)
    return policy.judge(Pause(silence, speech, probability, checks, words))


def wait_ms(
    policy: EagerSilence,
    probability: float | None,
    words: str = "",
    word_probability: float | None = None,
    mark_probability: float | None = None,
) -> int:
    """The silence that ends a turn of these words."""
    known = (probability, 1, words, word_probability, mark_probability)
    return policy.silence_ms(Pause(0, 0, *known))


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
    settings = EagerSettings(hush_ms=min(hush_ms, silence_ms))
    return [
        FixedSilence(silence_ms, hush_ms),
        adaptive,
        SemanticSilence(adaptive, 4000),
        EagerSilence(paced(900), silence_ms, settings=settings),
    ]


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


def end_ms(policy: EagerSilence, probability: float | None, words: str = "Is it?") -> int:
    """The silence at which a pause ends the turn, by windows of 20 ms."""
    for silence_ms in range(WINDOW_MS, policy.longest_silence_ms + WINDOW_MS, WINDOW_MS):
        if after(silence_ms, policy, probability, 2, words) is EndpointVerdict.END:
            return silence_ms
    raise AssertionError("it never ends")


def test_a_whole_message_ends_early() -> None:
    """At 240 ms where it reads as whole; a doubtful one as late as `semantic`, a broken-off one
    much later; not knowing is no reason to be quick."""
    policy, patient = eager("auto"), semantic("auto")
    assert end_ms(policy, OVER) == EagerSettings().early_ms == 240
    assert wait_ms(policy, UNSURE) == patient.silence_ms(UNSURE)
    assert wait_ms(policy, BREAKS_OFF) == patient.silence_ms(BREAKS_OFF)
    assert wait_ms(policy, None) >= 500


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 4))
def test_more_doubt_is_never_quicker(one: float, other: float, revocations: int) -> None:
    """The wait falls as the end probability rises, between the early and the usual one."""
    policy = eager("auto")
    for _ in range(revocations):
        end_ms(policy, OVER)
        policy.revoked()
    less, more = sorted((one, other))
    assert 240 <= wait_ms(policy, more) <= wait_ms(policy, less)
    assert wait_ms(policy, less) <= EAGERNESS["auto"].silence_ms


def test_the_model_is_asked_before_an_early_end() -> None:
    """Early enough that its word and the first token are there by then."""
    policy = eager("auto")
    assert after(100, policy) is EndpointVerdict.WAIT
    assert after(120, policy) is EndpointVerdict.HUSH


@pytest.mark.parametrize("words", ["I'd like, um", "We went to the", "Milk, eggs,", "It was so..."])
def test_words_that_break_off_veto_an_early_end(words: str) -> None:
    """Whatever the model says."""
    assert wait_ms(eager("auto"), OVER, words) == semantic("auto").silence_ms(BREAKS_OFF)


@pytest.mark.parametrize("words", ["Put milk.", "What is the capital of?"])
def test_a_mark_that_the_model_does_not_expect_breaks_off(words: str) -> None:
    """The recogniser ends everything with a mark, and behind a mark the end is likely."""
    policy, broken = eager("auto"), semantic("auto").silence_ms(BREAKS_OFF)
    assert wait_ms(policy, OVER, words, mark_probability=0.0003) == broken
    assert wait_ms(policy, OVER, words, mark_probability=0.3) == 240


def test_a_short_request_is_doubted() -> None:
    """Each item of a list could be the first one."""
    short, long = "Invite Tom.", "Invite Tom to the party on Sunday."
    policy = eager("auto")
    assert wait_ms(policy, 0.9, short) > wait_ms(policy, 0.9, long) == 240
    assert wait_ms(policy, 0.9, "Who is Tom?") == 240


def test_a_message_that_went_on_is_waited_for() -> None:
    """Behind an item that is not the last for longer; a question is over all the same. The next
    message begins anew."""
    policy = eager("auto")
    end_ms(policy, OVER, "Put milk.")
    policy.revoked()
    usual_ms = EAGERNESS["auto"].silence_ms
    assert end_ms(policy, 0.5, "Put milk, eggs.") > usual_ms * 1.4
    policy.revoked()
    assert wait_ms(policy, OVER, "Put milk, eggs and butter.") == usual_ms
    assert end_ms(policy, OVER, "Put milk on my list. Is it full?") == 240
    assert end_ms(policy, OVER, "Put milk on my list of things.") == 240


def test_nonsense_breaks_nothing_off() -> None:
    """What the recogniser itself hardly believes in is waited for as usual."""
    policy = eager("auto", settings=EagerSettings())
    usual_ms = EAGERNESS["auto"].silence_ms
    assert wait_ms(policy, BREAKS_OFF, "Entre le", word_probability=0.2) == usual_ms
    assert wait_ms(policy, OVER, "Entre le?", word_probability=0.2) == 240
    assert wait_ms(policy, BREAKS_OFF, "Enter the", word_probability=0.9) > usual_ms


def test_a_number_that_was_asked_for_is_waited_for() -> None:
    """Three digits of a telephone number are not all of it; elsewhere they are."""
    policy = eager("auto")
    policy.answered("Of course. What is your phone number?")
    assert end_ms(policy, OVER, "5 5 5.") > 1000
    assert end_ms(policy, OVER, "555 0142.") == 240
    policy.answered("It costs five dollars.")
    assert end_ms(policy, OVER, "5 5 5.") == 240


def test_an_end_taken_back_makes_the_next_ones_later() -> None:
    """Each time more, up to the usual silence; ends that hold make them earlier again."""
    pace = PauseStatistics()
    policy = eager("auto", pace)
    waits = []
    for _ in range(6):
        waits.append(end_ms(policy, LIKELY))
        policy.revoked()
    assert waits == sorted(waits)
    assert waits[0] < waits[1] <= waits[-1] < EAGERNESS["auto"].silence_ms + WINDOW_MS
    assert 0 < pace.caution <= CAUTION_MOST
    for _ in range(100):
        end_ms(policy, LIKELY)  # the next end shows that nobody took back the last
    assert end_ms(policy, LIKELY) == waits[0]


def test_a_late_end_taken_back_is_no_reason_for_caution() -> None:
    """The pace learns from it; early ends were not to blame."""
    pace = PauseStatistics()
    policy = eager("auto", pace)
    end_ms(policy, UNSURE)
    policy.revoked()
    assert pace.caution == 0


def test_every_eager_end_is_revocable() -> None:
    """And no other policy's is."""
    assert eager("high").revocable_ms == EagerSettings().revocable_ms == 1500
    assert [policy.revocable_ms for policy in policies(500, 200)[:3]] == [0, 0, 0]


@given(
    st.lists(st.sampled_from(["revoked", "held", "paused"]), max_size=30),
    st.one_of(st.none(), st.floats(0, 1)),
    st.text(max_size=20),
)
def test_eager_never_waits_longer_than_it_says(
    history: list[str], probability: float | None, words: str
) -> None:
    """Nor shorter than its early end, whatever has happened in the session."""
    policy = eager("auto")
    for event in history:
        end_ms(policy, OVER)
        if event == "revoked":
            policy.revoked()
        elif event == "paused":
            policy.continued_after(ms_to_engine_samples(1400))
    assert 240 <= end_ms(policy, probability, words) <= policy.longest_silence_ms


def test_bad_settings_are_named() -> None:
    """Negative lengths and unknown eagerness say what was expected."""
    with pytest.raises(ValueError, match="silence_ms must be 0 or more, got -1"):
        FixedSilence(silence_ms=-1)
    with pytest.raises(ValueError, match="hush_ms must be 0 or more, got -2"):
        AdaptiveSilence(PauseStatistics(), 500, -2)
    with pytest.raises(ValueError, match="low, medium, auto, high, got 'very'"):
        semantic("very")
