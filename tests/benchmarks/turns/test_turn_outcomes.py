"""What a person suffers in a turn, scored in samples: nothing runs but the policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.benchmarks.turns.endpoint import is_whole, score
from headstart.benchmarks.turns.pause_record import Asked, Paused, RecordedTurn
from headstart.benchmarks.turns.turn_outcomes import Costs, Outcome, play
from headstart.gateway.audio.clock import ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    EagerSettings,
    EagerSilence,
    EndpointPolicy,
    FixedSilence,
    PauseStatistics,
)

COSTS = Costs(first_token_ms=50, voice_ms=100, stop_ms=60)
FREE = Costs(first_token_ms=0, voice_ms=0, stop_ms=0)
WHOLE, BREAKS_OFF = 0.99, 1e-6
FIRST_PAUSE_AT_MS, END_AT_MS = 1000, 4000


def paused(at_ms: int, lasts_ms: int | None, probability: float, took_ms: float = 100) -> Paused:
    asked = [Asked(120, probability, "some words", took_ms)]
    lasts = None if lasts_ms is None else ms_to_engine_samples(lasts_ms)
    at = ms_to_engine_samples(at_ms)
    return Paused(at, ms_to_engine_samples(900), lasts, asked, smart_turn=probability)


def turn(
    *inner: tuple[int, float], last: float = WHOLE, kind: str = "plain", voice: str = "joe"
) -> RecordedTurn:
    """A turn with these inner pauses (length, probability), and then its end."""
    pauses = [paused(FIRST_PAUSE_AT_MS, ms, probability) for ms, probability in inner]
    pauses.append(paused(END_AT_MS, None, last))
    end = ms_to_engine_samples(END_AT_MS)
    return RecordedTurn("key", "report", voice, kind, "words", "", "", (), end, pauses)


def one(of: RecordedTurn, policy: EndpointPolicy, costs: Costs = COSTS) -> Outcome:
    (outcome,) = play([of], lambda: policy, costs)
    return outcome


def eager(**settings: float) -> EagerSilence:
    return EagerSilence(PauseStatistics(), settings=EagerSettings(**settings))  # type: ignore[arg-type]


def test_the_wait_is_silence_and_the_budget() -> None:
    """500 ms of silence and 50 ms to the token; nothing was cut."""
    outcome = one(turn(), FixedSilence(500))
    assert outcome.wait_ms == 550
    assert (outcome.heard_ms, outcome.broken, outcome.revocations) == (0, False, 0)


def test_a_token_cannot_be_there_before_it_is_prepared() -> None:
    """Asked at 200 ms, known 100 ms later: an end at 200 ms waits for it."""
    assert one(turn(), FixedSilence(200)).wait_ms == 350


def test_a_late_voice_detector_counts() -> None:
    """The wait begins at the person's last sound, wherever the detector found the end."""
    late = turn()
    late.pauses[-1].start_sample += ms_to_engine_samples(80)
    assert one(late, FixedSilence(500)).wait_ms == 630


def test_a_cut_turn_is_broken_once_it_was_answered() -> None:
    """The first token came at 550 ms of a pause of 900; its sound was heard from 650 to 960."""
    outcome = one(turn((900, WHOLE)), FixedSilence(500))
    assert outcome.broken
    assert outcome.heard_ms == 310


def test_going_on_before_the_first_token_breaks_nothing() -> None:
    """The endpoint at 500 ms was too early, but nothing had been answered at 540."""
    outcome = one(turn((540, WHOLE)), FixedSilence(500))
    assert not outcome.broken
    assert outcome.heard_ms == 0


def test_a_revocable_end_is_put_right() -> None:
    """The same pause under `eager`: a false start, taken back, and one message."""
    outcome = one(turn((900, WHOLE)), eager())
    assert not outcome.broken
    assert outcome.revocations == 1
    assert outcome.heard_ms > 300


def test_behind_the_window_nothing_is_taken_back() -> None:
    """Who goes on 1.7 s after an early end is answered on a half."""
    outcome = one(turn((2000, WHOLE)), eager())
    assert outcome.broken
    assert outcome.revocations == 0


def test_noise_behind_the_turn_takes_nothing_back() -> None:
    """What the detector takes for speech after the last sound is not the person."""
    noisy = turn()
    noisy.pauses[-1].silence_samples = ms_to_engine_samples(900)
    noisy.pauses.append(paused(END_AT_MS + 1500, None, WHOLE))
    outcome = one(noisy, eager())
    assert outcome.revocations == 0
    assert outcome.wait_ms < 900


def test_each_voice_is_a_session_of_its_own() -> None:
    """What a policy learns from one voice, it does not know with the next."""
    made: list[EndpointPolicy] = []

    def make() -> EndpointPolicy:
        made.append(eager())
        return made[-1]

    play([turn((900, WHOLE)), turn(), turn(voice="awb")], make, COSTS)
    assert len(made) == 2


@given(
    st.lists(st.tuples(st.integers(6, 120), st.floats(0, 1)), max_size=4),
    st.floats(0, 1),
    st.integers(10, 60),
)
def test_more_patience_is_never_heard_more(
    inner: list[tuple[int, float]], last: float, windows: int
) -> None:
    """A longer fixed silence never breaks or starts more, and never answers sooner."""
    some = turn(*((20 * count, probability) for count, probability in inner), last=last)
    quick = one(some, FixedSilence(20 * windows), FREE)
    slow = one(some, FixedSilence(20 * windows + 200), FREE)
    assert slow.heard_ms <= quick.heard_ms
    assert slow.broken <= quick.broken
    assert slow.wait_ms >= quick.wait_ms


@given(st.lists(st.tuples(st.integers(6, 120), st.floats(0, 1)), max_size=4), st.floats(0, 1))
def test_what_goes_on_in_time_is_never_broken(inner: list[tuple[int, float]], last: float) -> None:
    """Under `eager`, only a pause that outlasts an end by more than the window breaks a turn."""
    some = turn(*((20 * count, probability) for count, probability in inner), last=last)
    outcome = one(some, eager())
    longest_ms = max((20 * count for count, _ in inner), default=0)
    assert not outcome.broken or longest_ms > EagerSettings().revocable_ms
    assert outcome.wait_ms >= 0


def test_a_whole_turn_has_no_inner_pause() -> None:
    """Nor is it a thought left open."""
    assert is_whole(turn())
    assert is_whole(turn((180, WHOLE)))
    assert not is_whole(turn((300, WHOLE)))
    assert not is_whole(turn(kind="left open"))


def test_the_score_counts_turns() -> None:
    """Two of four are cut: one is heard for long, both are broken."""
    turns = [turn(), turn(), turn((700, WHOLE)), turn((1000, BREAKS_OFF))]
    found = score(play(turns, lambda: FixedSilence(500), COSTS))
    assert found["first_token_ms_p50"] == 550
    assert found["false_start_share"] == 0.25
    assert found["broken_share"] == 0.5
    assert found["heard_ms_mean"] == pytest.approx((110 + 410) / 4)
