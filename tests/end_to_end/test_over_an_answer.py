"""What may come over a spoken answer, by a real recogniser and in virtual time: singing, two
people at once, our own answer; and somebody who means it all the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headstart.benchmarks.harness.in_process import Live, clip
from headstart.benchmarks.turns.overlap import Outcome, Overlap
from headstart.benchmarks.turns.overlap_room import echo_of, singing
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.tts.espeak import Espeak

pytestmark = pytest.mark.weights

Samples = npt.NDArray[np.int16]
SAID = "The capital of France is Paris, which lies on the river Seine."


@pytest.fixture(scope="module")
def live() -> Live:
    return Live("tiny", threads=1)


@pytest.fixture(scope="module")
def answer() -> Samples:
    return np.concatenate(list(Espeak().speak(SAID, 1.0)))


@pytest.fixture(scope="module")
def person() -> Samples:
    """ "What is the capital of France?", 24 kHz."""
    return StreamResampler(16_000, 24_000).feed(clip("capital.wav"))


def heard(live: Live, name: str, sound: Samples, answer: Samples | None = None) -> Outcome:
    overlap = Overlap(live, Outcome(name), answer)
    overlap.hear(sound)
    overlap.end()
    return overlap.outcome


def mixed(first: Samples, second: Samples, at_s: float, gain: float = 1.0) -> Samples:
    """`second`, so much later, in `first`, which is made long enough."""
    at = round(at_s * 24_000)
    whole = np.zeros(max(len(first), at + len(second)))
    whole[: len(first)] += first
    whole[at : at + len(second)] += second * gain
    return whole.clip(-32768, 32767).astype(np.int16)


@pytest.mark.parametrize("rt60_s", [0.0, 0.3])
def test_an_answer_does_not_interrupt_itself(live: Live, answer: Samples, rt60_s: float) -> None:
    """The recogniser gets it from the echo, and it plays on without a pause."""
    outcome = heard(live, f"echo {rt60_s}", echo_of(answer, rt60_s), answer)
    assert outcome.words, "the echo was never heard"
    assert (outcome.interrupted, outcome.holds) == (False, 0)


def test_without_a_reference_the_same_sound_interrupts(live: Live, answer: Samples) -> None:
    """Over an answer that sounds like nothing, it is somebody's speech."""
    assert heard(live, "somebody", echo_of(answer)).interrupted


def test_a_person_over_the_echo_interrupts(live: Live, answer: Samples, person: Samples) -> None:
    """Their words, behind those of the echo."""
    sound = mixed(echo_of(answer), person, at_s=1.0)
    outcome = heard(live, "over the echo", sound, answer)
    assert outcome.interrupted
    assert outcome.announced_ms is not None
    assert outcome.announced_ms > 1_000


@pytest.mark.parametrize("seed", [1, 2])
def test_singing_does_not_interrupt(live: Live, seed: int) -> None:
    """A voice without words, over chords: the answer stands still for two seconds at most."""
    outcome = heard(live, f"singing {seed}", singing(4.0, seed))
    assert not outcome.interrupted
    assert outcome.held_ms <= 2_100


def test_a_question_over_singing_interrupts(live: Live, person: Samples) -> None:
    """In a room where music plays, the person is still heard."""
    quiet = (singing(4.0, 1) * 0.1).astype(np.int16)
    assert heard(live, "over singing", mixed(quiet, person, at_s=1.0)).interrupted


def test_two_people_at_once_are_one_interruption(
    live: Live, answer: Samples, person: Samples
) -> None:
    """Both speak over the answer, the second one from half a second on."""
    other = np.concatenate(list(Espeak().speak("Wait, I want to say something.", 1.0)))
    sound = mixed(person, other, at_s=0.5, gain=float(np.abs(person).max() / np.abs(other).max()))
    outcome = heard(live, "two people", sound, answer)
    assert outcome.interrupted
    assert outcome.holds == 1
