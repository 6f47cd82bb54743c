"""What a person suffers in each turn under an endpoint policy, replayed over a record of the turn.

    wait          from the person's last sound to the first token of the answer that stands
    false start   an answer that began in a pause, until the person went on and it fell silent
    broken turn   a half answered and never put right: the rest came as a message of its own
    revocation    an early end taken back in time: the message went on as one

A policy whose ends are revocable (`revocable_ms`) takes an end back when the person goes on in
time. Under any other, a cut turn is broken as soon as the first token was there. What the voice
detector takes for speech behind the person's last sound delays an endpoint, but nothing is taken
back for it: that needs words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from headstart.benchmarks.turns.pause_record import Asked, Paused, RecordedTurn
from headstart.gateway.audio.clock import engine_samples_to_exact_ms, ms_to_engine_samples
from headstart.gateway.audio.endpointing import (
    EndpointPolicy,
    EndpointVerdict,
    Pause,
    mean_probability,
)
from headstart.gateway.audio.open_utterance import CONTINUES_WITHIN_MS
from headstart.gateway.audio.vad import WINDOW_SAMPLES

NEVER_SAMPLES = 1 << 30


@dataclass(frozen=True)
class Costs:
    """What comes on top of silence, in ms: `first_token_ms`: from the endpoint to the first token,
    prepared in the pause (`headstart demo` on two idle cores: 50 to 56 on an older processor, 4 to
    16 on a new one); `voice_ms`: from there to the first sound, the least that is aimed at, because
    a quicker voice is heard for longer; `stop_ms`: from the voice detector's noticing speech to
    the answer's silence, where the server plays the sound."""

    first_token_ms: float = 50.0
    voice_ms: float = 100.0
    stop_ms: float = 60.0


@dataclass(frozen=True)
class HeardPause(Pause):
    """With what peers ask: smart-turn's probability that the turn is over, once it is known."""

    smart_turn: float | None = None


SMART_TURN_KNOWN_MS = 240  # asked at 200, 31 ms of work


@dataclass(frozen=True)
class Outcome:
    """One turn. `heard_ms`: of false starts, all in all; `asks`: of recogniser and model."""

    turn: RecordedTurn
    wait_ms: float
    heard_ms: float
    broken: bool
    revocations: int
    asks: int


@dataclass
class _Sofar:
    heard_ms: float = 0.0
    broken: bool = False
    revocations: int = 0
    asks: int = 0


def play(
    turns: Sequence[RecordedTurn], make: Callable[[], EndpointPolicy], costs: Costs | None = None
) -> list[Outcome]:
    """Each voice's turns in order, as one session under a policy with its own memory."""
    outcomes = []
    for _, of_voice in groupby(turns, lambda turn: turn.voice):
        policy = make()
        outcomes += [_outcome(policy, turn, costs or Costs()) for turn in of_voice]
    return outcomes


def _outcome(policy: EndpointPolicy, turn: RecordedTurn, costs: Costs) -> Outcome:
    sofar = _Sofar()
    policy.answered(turn.asked)
    for pause in turn.pauses:
        end = _end_of(policy, pause, sofar)
        if end is None:
            assert pause.silence_samples is not None, "no policy waits for ever"
            policy.continued_after(pause.silence_samples)
            continue
        token_ms = max(end.silence_ms, end.ready_ms) + costs.first_token_ms
        if pause.silence_samples is None or not _goes_on(policy, turn, pause, end, sofar, costs):
            lead_ms = engine_samples_to_exact_ms(pause.start_sample - turn.end_sample)
            wait_ms = lead_ms + token_ms
            return Outcome(
                turn, wait_ms, sofar.heard_ms, sofar.broken, sofar.revocations, sofar.asks
            )
    raise AssertionError(f"{turn.key}: the record does not end in silence")


@dataclass(frozen=True)
class _End:
    """An endpoint, in ms of silence; `ready_ms`: when the prepared first token is there."""

    silence_ms: float
    ready_ms: float


def _end_of(policy: EndpointPolicy, pause: Paused, sofar: _Sofar) -> _End | None:
    """Where `policy` ends the turn in this pause; None: it waits until the pause is over."""
    lasts = NEVER_SAMPLES if pause.silence_samples is None else pause.silence_samples
    known: list[tuple[int, Asked]] = []  # when, in samples of silence, and which word
    for silence in range(WINDOW_SAMPLES, lasts + 1, WINDOW_SAMPLES):
        told = [word for at, word in known if silence >= at]
        word = told[-1] if told else Asked(0, None, "", 0.0)
        smart_turn = (
            pause.smart_turn if silence >= ms_to_engine_samples(SMART_TURN_KNOWN_MS) else None
        )
        now = HeardPause(
            silence,
            pause.speech_samples,
            word.probability,
            len(known),
            word.words,
            mean_probability(word.likely),
            word.marked,
            smart_turn,
        )
        verdict = policy.judge(now)
        is_first = verdict is not EndpointVerdict.WAIT and not known
        if is_first or verdict is EndpointVerdict.RECHECK:
            found = _asked_by(pause, silence)
            known.append((silence + ms_to_engine_samples(round(found.took_ms)), found))
            sofar.asks += 1
        if verdict is EndpointVerdict.END:
            ready = known[0][0] if known[0][1].took_ms else 0
            return _End(engine_samples_to_exact_ms(silence), engine_samples_to_exact_ms(ready))
    return None


def _asked_by(pause: Paused, silence: int) -> Asked:
    """The recorded word that a session which asks now gets: the last one asked until now, or the
    first where none was."""
    if not pause.asked:
        return Asked(0, None, "", 0.0)
    until = [one for one in pause.asked if ms_to_engine_samples(one.at_ms) <= silence]
    return until[-1] if until else pause.asked[0]


def _goes_on(
    policy: EndpointPolicy,
    turn: RecordedTurn,
    pause: Paused,
    end: _End,
    sofar: _Sofar,
    costs: Costs,
) -> bool:
    """Sound goes on behind an endpoint: whether the person does. Tells the policy."""
    assert pause.silence_samples is not None
    if pause.start_sample + pause.silence_samples > turn.end_sample:
        return False
    lasts_ms = engine_samples_to_exact_ms(pause.silence_samples)
    late_ms = lasts_ms - end.silence_ms
    token_ms = max(end.silence_ms, end.ready_ms) + costs.first_token_ms
    sofar.heard_ms += max(0.0, lasts_ms + costs.stop_ms - token_ms - costs.voice_ms)
    if policy.revocable_ms and late_ms <= policy.revocable_ms:
        policy.revoked()
        policy.continued_after(pause.silence_samples)
        sofar.revocations += 1
        return True
    if late_ms <= CONTINUES_WITHIN_MS:
        policy.continued_after(pause.silence_samples)
    sofar.broken = sofar.broken or lasts_ms > token_ms
    return True
