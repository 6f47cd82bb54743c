"""The listening path: the same events however the audio is cut, and nothing said is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import TurnRef
from gateway.endpoint import FixedSilence
from gateway.listening import (
    CommitTooShortError,
    Detection,
    Dropped,
    DropReason,
    Hushed,
    Listener,
    ListenEvent,
    ListeningSettings,
    OddAudioError,
    Resumed,
    SpeechChunk,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceTooLongError,
)
from gateway.media.resample import StreamResampler
from gateway.media.timebase import NS_PER_MS, hear_samples, wire_ms_exact, wire_samples
from gateway.vad import Samples, SpeechScore
from tests.gateway import speech

WINDOW_MS = 20
SIZES = [1, 7, 160, 511, 512, 513, 4800, 64_000]
E = TypeVar("E")


class Script:
    """A speech detector that answers from a string, one character a window; silence after it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.asked = 0

    def is_speech(self, window: Samples, energy_dbfs: float) -> bool:
        self.asked += 1
        return self.pattern[self.asked - 1 : self.asked] == "#"


def scripted(pattern: str) -> Callable[[float], SpeechScore]:
    score = Script(pattern)
    return lambda threshold: score


def ramp(ms: int) -> bytes:
    """Audio whose samples differ, so that lost or doubled ones show."""
    return (np.arange(wire_samples(ms)) % 20_011 - 10_000).astype(np.int16).tobytes()


def play(listener: Listener, pcm: bytes, size: int = 480, speed: float = 1.0) -> list[ListenEvent]:
    """Feed in packets of `size` samples, `speed` times as fast as real time (0: all at once)."""
    events: list[ListenEvent] = []
    for at in range(0, len(pcm), 2 * size):
        packet = pcm[at : at + 2 * size]
        passed_ms = wire_ms_exact((at + len(packet)) // 2) / speed if speed else 0.0
        events += listener.feed(packet, int(passed_ms * NS_PER_MS))
    return events


def run_script(
    pattern: str, detection: Detection | None = None, chunk_ms: int = 500
) -> list[ListenEvent]:
    """The events of a scripted session, 20 ms packets."""
    listener = Listener(
        detection or Detection(), ListeningSettings(chunk_ms=chunk_ms), score=scripted(pattern)
    )
    return play(listener, ramp(len(pattern) * WINDOW_MS))


def only(events: Sequence[ListenEvent], kind: type[E]) -> list[E]:
    return [e for e in events if isinstance(e, kind)]


def names(events: Sequence[ListenEvent]) -> list[str]:
    return [type(e).__name__ for e in events]


def story(events: Sequence[ListenEvent]) -> list[ListenEvent]:
    """The events without what wall time put into them."""
    plain: list[ListenEvent] = []
    for event in events:
        if isinstance(event, SpeechChunk):
            event = replace(event, received_ns=0)
        elif isinstance(event, SpeechStopped):
            event = replace(event, last_speech_received_ns=0, realtime=False)
        plain.append(event)
    return plain


def delivered(events: Sequence[ListenEvent]) -> bytes:
    """The chunks of one utterance, joined; checks that each follows on the one before."""
    chunks = only(events, SpeechChunk)
    for left, right in pairwise(chunks):
        assert right.start_sample == left.end_sample
    return b"".join(c.pcm for c in chunks)


CONVERSATION = speech.join(
    speech.hiss(400),
    speech.voice(700),
    speech.hiss(800, seed=5),
    speech.voice(400, seed=3),
    speech.hiss(320, seed=6),
    speech.voice(300, seed=4),
    speech.hiss(700, seed=7),
)


# --- packets do not matter --------------------------------------------------------------------


@pytest.mark.parametrize("speed", [1.0, 20.0, 0.0])
@pytest.mark.parametrize("size", SIZES)
def test_packet_size_and_speed_do_not_matter(size: int, speed: float) -> None:
    """Two turns, the second with a pause in it: the same events, the same sample numbers and the
    same chunk bytes for packets of any size, live, faster than real time and all at once."""
    expected = story(play(Listener(Detection()), CONVERSATION, size=480))
    assert names(expected) == [
        *("SpeechStarted", "SpeechChunk", "SpeechChunk", "SpeechChunk", "Hushed", "SpeechStopped"),
        *("SpeechStarted", "SpeechChunk", "SpeechChunk", "Hushed", "Resumed", "SpeechChunk"),
        *("SpeechChunk", "Hushed", "SpeechStopped"),
    ]
    assert story(play(Listener(Detection()), CONVERSATION, size, speed)) == expected


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9000), max_size=10),
    chunk_ms=st.sampled_from([200, 500, 1000]),
    by_hand=st.booleans(),
)
def test_random_cuts_do_not_matter(sizes: list[int], chunk_ms: int, by_hand: bool) -> None:
    """Nor do packets of ever-changing sizes, under VAD and under push-to-talk."""

    def run(cuts: list[int]) -> list[ListenEvent]:
        detection = None if by_hand else Detection()
        listener = Listener(detection, ListeningSettings(chunk_ms=chunk_ms))
        events: list[ListenEvent] = []
        at = i = 0
        while at < len(CONVERSATION):
            step = 2 * cuts[i % len(cuts)]
            events += listener.feed(CONVERSATION[at : at + step], at)
            at, i = at + step, i + 1
        if by_hand:
            events += listener.commit()
        return story(events)

    # A large packet in each round keeps hypothesis from choosing 90,000 packets of one sample.
    assert run([*sizes, 4800]) == run([len(CONVERSATION)])


@settings(max_examples=60, deadline=None)
@given(pattern=st.text("#.", min_size=1, max_size=150), chunk_ms=st.sampled_from([200, 500]))
def test_every_story_is_well_formed(pattern: str, chunk_ms: int) -> None:
    """Whatever the detector says: utterances do not overlap, chunks have no gaps, only the last
    before a hush is short, every stop is where the chunks end, and revisions follow on."""
    ref: TurnRef | None = None
    end = 0
    short = hushed = False
    for event in run_script(pattern, chunk_ms=chunk_ms):
        match event:
            case SpeechStarted():
                assert ref is None
                assert event.start_sample >= end
                ref, end, short, hushed = event.ref, event.start_sample, False, False
            case SpeechChunk():
                assert (event.ref, event.start_sample) == (ref, end)
                assert not short, "a short chunk is the last before a hush"
                assert not hushed
                end = event.end_sample
                short = len(event.pcm) // 2 < hear_samples(chunk_ms)
            case Hushed():
                assert (event.ref, event.end_sample) == (ref, end)
                hushed = True
            case Resumed():
                assert ref is not None
                assert event.ref == TurnRef(ref.turn, ref.revision + 1)
                ref, short, hushed = event.ref, False, False
            case SpeechStopped():
                assert (event.ref, event.end_sample) == (ref, end)
                assert event.last_speech_sample <= end <= event.endpoint_sample
                assert hushed
                ref = None
            case Dropped():
                assert event.ref == ref
                ref = None


# --- server VAD ---------------------------------------------------------------------------------


def test_first_words_are_kept() -> None:
    """The utterance begins `prefix_padding_ms` before the first speech window, and its audio is
    the resampled stream from there on, sample for sample."""
    pattern = "." * 50 + "#" * 50 + "." * 30
    events = run_script(pattern)
    (started,) = only(events, SpeechStarted)
    assert started.speech_sample == hear_samples(1000)
    assert started.start_sample == hear_samples(700)
    assert started.audio_start_ms == 700
    assert not started.push_to_talk
    stream = StreamResampler(24_000, 16_000).feed(ramp(len(pattern) * WINDOW_MS))
    pcm = delivered(events)
    assert pcm == stream[started.start_sample :][: len(pcm) // 2].tobytes()


def test_pre_roll_stops_at_the_session_and_at_the_turn_before() -> None:
    """Speech at sample 0 has no pre-roll, and no audio is delivered in two turns."""
    events = run_script("#" * 20 + "." * 25 + "#" * 20 + "." * 25)
    first, second = only(events, SpeechStarted)
    stopped, _ = only(events, SpeechStopped)
    assert first.start_sample == 0
    assert second.start_sample == max(stopped.end_sample, second.speech_sample - 4800)


@pytest.mark.parametrize("chunk_ms", [200, 500, 1000])
def test_chunks_are_exact_until_the_hush(chunk_ms: int) -> None:
    """Every chunk lasts exactly `chunk_ms`, but the last, which ends at the hush point."""
    events = run_script("." * 20 + "#" * 110 + "." * 30, chunk_ms=chunk_ms)
    chunks = only(events, SpeechChunk)
    assert {len(c.pcm) // 2 for c in chunks[:-1]} == {hear_samples(chunk_ms)}
    (hushed,) = only(events, Hushed)
    assert chunks[-1].end_sample == hushed.end_sample == hear_samples(130 * WINDOW_MS + 200)
    assert events.index(hushed) == events.index(chunks[-1]) + 1


def test_a_hush_then_the_endpoint() -> None:
    """The hush comes 200 ms and the endpoint 500 ms after the last speech, on the sample clock;
    wall time enters only as the receipt of the last speech window."""
    events = run_script("." * 20 + "#" * 50 + "." * 40)
    assert names(events)[-2:] == ["Hushed", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.SILENCE
    assert stopped.last_speech_sample == hear_samples(1400)
    assert stopped.last_speech_received_ns == 1400 * NS_PER_MS
    assert stopped.end_sample == hear_samples(1600)
    assert stopped.endpoint_sample == hear_samples(1900)
    assert stopped.audio_end_ms == 1900
    assert stopped.realtime


def test_silence_as_short_as_the_hush_still_hushes_first() -> None:
    """With the protocol's 200 ms of silence, hush and endpoint come in one window, in order."""
    detection = Detection(endpoint=FixedSilence(silence_ms=200))
    events = run_script("#" * 30 + "." * 30, detection)
    assert names(events)[-3:] == ["SpeechChunk", "Hushed", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == stopped.end_sample == hear_samples(800)


def test_resuming_within_the_hangover_loses_nothing() -> None:
    """Speech again after 320 ms: one turn, a new revision, and the gap's audio is delivered."""
    events = run_script("#" * 30 + "." * 16 + "#" * 30 + "." * 30)
    assert len(only(events, SpeechStarted)) == len(only(events, SpeechStopped)) == 1
    (resumed,) = only(events, Resumed)
    assert resumed.ref == TurnRef(1, 1)
    assert resumed.at_sample == hear_samples((30 + 16 + 2) * WINDOW_MS)
    hushes = only(events, Hushed)
    assert [h.ref.revision for h in hushes] == [0, 1]
    assert len(delivered(events)) // 2 == only(events, SpeechStopped)[0].end_sample
    after = [c for c in only(events, SpeechChunk) if c.start_sample >= hushes[0].end_sample]
    assert after[0].start_sample == hushes[0].end_sample
    assert {c.ref.revision for c in after} == {1}


def test_a_click_in_the_pause_neither_resumes_nor_delays() -> None:
    """A lone speech window 300 ms into the pause changes nothing."""
    quiet = run_script("#" * 30 + "." * 40)
    click = run_script("#" * 30 + "." * 15 + "#" + "." * 24)
    assert story(click) == story(quiet)


def test_a_click_is_no_turn() -> None:
    """Two windows of sound begin nothing."""
    assert run_script("." * 20 + "##" + "." * 50) == []


def test_too_little_speech_is_dropped() -> None:
    """80 ms of speech begin a turn, which is dropped at the endpoint without a hush."""
    events = run_script("." * 20 + "####" + "." * 40)
    assert names(events) == ["SpeechStarted", "SpeechChunk", "Dropped"]
    (dropped,) = only(events, Dropped)
    assert dropped.reason is DropReason.TOO_SHORT


def test_one_word_is_a_turn() -> None:
    """A spoken "ok" of 200 ms is heard whole, by the real detector."""
    word = speech.join(speech.hiss(1000), speech.voice(200), speech.hiss(1000))
    events = play(Listener(Detection()), word)
    assert names(events) == [
        "SpeechStarted",
        "SpeechChunk",
        "SpeechChunk",
        "Hushed",
        "SpeechStopped",
    ]
    started, stopped = only(events, SpeechStarted)[0], only(events, SpeechStopped)[0]
    assert started.start_sample <= hear_samples(740)
    assert stopped.end_sample >= hear_samples(1200)


def test_ten_minutes_of_silence_are_free() -> None:
    """Nothing happens, nothing piles up, and the first word after it is heard in its place."""
    listener = Listener(Detection())
    minute = speech.hiss(60_000).tobytes()
    held = []
    for _ in range(10):
        assert play(listener, minute, size=24_000) == []
        held.append(listener.buffered_bytes)
    assert max(held) == held[0] <= 2 * hear_samples(300 + 6 * WINDOW_MS)
    events = play(listener, speech.join(speech.voice(500), speech.hiss(800)))
    (started,) = only(events, SpeechStarted)
    assert abs(started.speech_sample - hear_samples(600_000)) <= hear_samples(40)
    assert len(only(events, SpeechStopped)) == 1


def test_a_minute_of_unbroken_speech() -> None:
    """One turn, 120 chunks of 500 ms and never more than a chunk held."""
    listener = Listener(Detection())
    events: list[ListenEvent] = []
    voice = speech.voice(5000).tobytes()
    for _ in range(12):
        events += play(listener, voice)
        assert listener.buffered_bytes <= 2 * hear_samples(500)
    assert len(only(events, SpeechStarted)) == 1
    assert not only(events, Hushed)
    assert len(delivered(events)) // 2 == hear_samples(60_000)


def test_speech_without_end_is_cut_at_the_limit() -> None:
    """After `max_utterance_s` the turn ends with cause LIMIT and the next one follows on it
    without a gap."""
    listener = Listener(
        Detection(), ListeningSettings(max_utterance_s=2), score=scripted("#" * 150)
    )
    events = play(listener, ramp(3000))
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.cause, stopped.end_sample) == (StopCause.LIMIT, hear_samples(2000))
    assert only(events, SpeechStarted)[1].start_sample == hear_samples(2000)


def test_two_quick_turns() -> None:
    """A second turn right behind the first endpoint has its own number and begins where the first
    one's audio ended, or later."""
    events = run_script("#" * 20 + "." * 26 + "#" * 20 + "." * 26)
    assert [e.ref.turn for e in only(events, SpeechStopped)] == [1, 2]


def test_a_huge_packet_may_hold_two_turns() -> None:
    """Both come out, in order, and are marked as not having come in real time."""
    events = Listener(Detection()).feed(CONVERSATION, received_ns=7)
    stops = only(events, SpeechStopped)
    assert [s.ref.turn for s in stops] == [1, 2]
    assert [s.realtime for s in stops] == [False, False]
    assert {s.last_speech_received_ns for s in stops} == {7}


def test_capture_stamps_belong_to_the_last_speech() -> None:
    """The stop carries the stamp of the packet with the last speech, not of the last packet."""
    listener = Listener(Detection(), score=scripted("#" * 20 + "." * 40))
    events: list[ListenEvent] = []
    pcm = ramp(1200)
    for i in range(60):
        packet = pcm[i * 960 : (i + 1) * 960]
        events += listener.feed(packet, received_ns=1000 + i, captured_ns=i if i < 30 else None)
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.last_speech_received_ns, stopped.last_speech_captured_ns) == (1019, 19)


# --- the watchdog -------------------------------------------------------------------------------


def watch(listener: Listener, from_ms: int, to_ms: int) -> list[ListenEvent]:
    events: list[ListenEvent] = []
    for now_ms in range(from_ms, to_ms, 100):
        events += listener.tick(now_ms * NS_PER_MS)
    return events


def test_mute_in_mid_word_ends_the_turn() -> None:
    """Packets cease in mid-speech: nothing before a second is up, then hush and endpoint, with the
    last speech received when it really was."""
    listener = Listener(Detection())
    began = play(listener, speech.join(speech.hiss(300), speech.voice(1000)))
    assert names(began)[0] == "SpeechStarted"
    assert watch(listener, 1300, 2300) == []
    events = watch(listener, 2300, 2500)
    assert names(events)[-2:] == ["Hushed", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.last_speech_received_ns <= 1300 * NS_PER_MS
    assert abs(stopped.last_speech_sample - hear_samples(1300)) <= hear_samples(120)
    assert listener.inserted_silence_ms == 1000.0


def test_the_watchdog_keeps_step_with_a_long_silence() -> None:
    """With 2 s of silence asked for, the gap is filled tick by tick until they are over."""
    listener = Listener(Detection(endpoint=FixedSilence(silence_ms=2000)), score=scripted("#" * 50))
    play(listener, ramp(1000))
    events = watch(listener, 1100, 6000)
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == hear_samples(3000)
    assert listener.inserted_silence_ms == 2000.0


def test_the_watchdog_sleeps_when_nobody_speaks() -> None:
    """Silence, push-to-talk and a session without a packet are none of its business."""
    quiet = Listener(Detection())
    assert quiet.tick(10**12) == []
    play(quiet, speech.hiss(500).tobytes())
    assert quiet.tick(10**12) == []
    by_hand = Listener(None)
    play(by_hand, ramp(500))
    assert by_hand.tick(10**12) == []
    assert by_hand.open_ref is not None


def test_packets_that_come_back_go_on_on_the_clock() -> None:
    """After the watchdog's silence the clock has moved on, and a new turn is numbered there."""
    listener = Listener(Detection(), score=scripted("#" * 25 + "." * 50 + "#" * 25))
    play(listener, ramp(500))
    watch(listener, 600, 1600)
    assert listener.clock_samples == hear_samples(500 + 1000)
    events = play(listener, ramp(500))
    assert only(events, SpeechStarted)[0].speech_sample == hear_samples(1500)


# --- push-to-talk ---------------------------------------------------------------------------------


def test_push_to_talk_delivers_everything_appended() -> None:
    """The first append begins, chunks leave as they fill, commit flushes the last odd samples;
    every sample appended is in a chunk."""
    pcm = ramp(1234)[:-14]
    listener = Listener(None)
    events = play(listener, pcm, size=511)
    assert names(events) == ["SpeechStarted", "SpeechChunk", "SpeechChunk"]
    assert only(events, SpeechStarted)[0].push_to_talk
    events += listener.commit()
    assert names(events)[3:] == ["SpeechChunk", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.COMMIT
    assert len(delivered(events)) // 2 == stopped.end_sample == -(-len(pcm) // 2 * 2 // 3)
    assert stopped.last_speech_sample == stopped.end_sample
    assert listener.open_ref is None


def test_the_next_push_to_talk_turn_follows_on() -> None:
    """Its number is one higher and it begins at the sample where the last one ended."""
    listener = Listener(None)
    play(listener, ramp(307))
    (stopped,) = only(listener.commit(), SpeechStopped)
    (started,) = only(play(listener, ramp(200)), SpeechStarted)
    assert started.ref == TurnRef(2)
    assert started.start_sample == stopped.end_sample


@pytest.mark.parametrize("held_ms", [0, 5, 99])
def test_a_commit_needs_100_ms(held_ms: int) -> None:
    """Less is refused with what is there, to the sample, and the audio stays."""
    listener = Listener(None)
    play(listener, ramp(held_ms))
    with pytest.raises(CommitTooShortError, match=rf"at least 100 ms .* got {held_ms}\.00 ms"):
        listener.commit()
    play(listener, ramp(100 - held_ms))
    assert names(listener.commit()) == ["SpeechChunk", "SpeechStopped"]


def test_clear_drops() -> None:
    """The open utterance is dropped, and nothing of it comes back in the next."""
    listener = Listener(None)
    play(listener, ramp(345))
    (dropped,) = listener.clear()
    assert dropped == Dropped(TurnRef(1), DropReason.CLEARED, hear_samples(345))
    assert listener.clear() == []
    (started,) = only(play(listener, ramp(200)), SpeechStarted)
    assert started.start_sample == hear_samples(345)


def test_clear_empties_the_pre_roll() -> None:
    """Under VAD, audio before a clear is not pre-roll after it."""
    listener = Listener(Detection(), score=scripted("." * 20 + "#" * 20))
    play(listener, ramp(390))
    assert listener.clear() == []
    (started,) = only(play(listener, ramp(300)), SpeechStarted)
    assert started.start_sample == hear_samples(390)


def test_push_to_talk_is_bounded() -> None:
    """The packet that would pass the limit is refused and named; the utterance can be committed."""
    listener = Listener(None, ListeningSettings(max_utterance_s=1))
    play(listener, ramp(990))
    with pytest.raises(UtteranceTooLongError, match=r"may last 1 s, .* make it 1\.01 s"):
        listener.feed(ramp(20), 0)
    (stopped,) = only(listener.commit(), SpeechStopped)
    assert stopped.end_sample == hear_samples(990)


# --- commit, clear and new settings under VAD -----------------------------------------------------


def test_commit_in_mid_speech_ends_it_there() -> None:
    """All audio up to the commit is delivered, the odd samples too."""
    listener = Listener(Detection(), score=scripted("#" * 100))
    events = play(listener, ramp(715), size=480)
    events += listener.commit()
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.cause, stopped.end_sample) == (StopCause.COMMIT, hear_samples(715))
    assert len(delivered(events)) // 2 == hear_samples(715)


def test_commit_in_a_hush_ends_where_the_hush_began() -> None:
    """So that the speculation stands: no chunk follows the hush."""
    listener = Listener(Detection(), score=scripted("#" * 30 + "." * 30))
    events = play(listener, ramp(600 + 320))
    assert names(events)[-1] == "Hushed"
    (stopped,) = listener.commit()
    assert isinstance(stopped, SpeechStopped)
    assert stopped.end_sample == only(events, Hushed)[0].end_sample


def test_commit_without_speech_is_refused() -> None:
    """Under VAD, silence is no utterance: 0 ms to commit."""
    listener = Listener(Detection())
    play(listener, speech.hiss(1000).tobytes())
    with pytest.raises(CommitTooShortError, match=r"got 0\.00 ms"):
        listener.commit()


def test_the_ear_hears_on_after_commit_and_clear() -> None:
    """Odd cuts by commit and clear do not shift what comes after: windows stay on the clock."""
    listener = Listener(Detection())
    play(listener, speech.join(speech.hiss(300), speech.voice(503)))
    listener.commit()
    play(listener, speech.hiss(777).tobytes())
    listener.clear()
    at = listener.clock_samples
    events = play(listener, speech.join(speech.hiss(700), speech.voice(600), speech.hiss(700)))
    (started,) = only(events, SpeechStarted)
    assert abs(started.speech_sample - at - hear_samples(700)) <= hear_samples(40)
    assert len(only(events, SpeechStopped)) == 1


def test_to_push_to_talk_in_mid_speech() -> None:
    """The open utterance waits for its commit; silence no longer ends it; nothing is lost."""
    listener = Listener(Detection(), score=scripted("#" * 30))
    events = play(listener, ramp(600))
    events += listener.set_detection(None)
    events += play(listener, ramp(2000))
    assert not only(events, Hushed)
    events += listener.commit()
    (stopped,) = only(events, SpeechStopped)
    assert len(delivered(events)) // 2 == stopped.end_sample == hear_samples(2600)


def test_to_push_to_talk_in_a_hush() -> None:
    """The hush is taken back: a new revision, and the pause is delivered with the rest."""
    listener = Listener(Detection(), score=scripted("#" * 30 + "." * 30))
    events = play(listener, ramp(900))
    assert names(events)[-1] == "Hushed"
    (resumed,) = listener.set_detection(None)
    assert isinstance(resumed, Resumed)
    events += listener.commit()
    assert len(delivered(events)) // 2 == hear_samples(900)


def test_to_vad_in_mid_utterance() -> None:
    """An utterance begun by hand ends by silence, counted from the change, and is not dropped."""
    listener = Listener(None, score=scripted(""))
    events = play(listener, ramp(600))
    events += listener.set_detection(Detection())
    events += play(listener, ramp(600))
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.SILENCE
    assert stopped.endpoint_sample == hear_samples(600 + 500)


def test_to_vad_between_utterances() -> None:
    """The detector starts at the present sample; push-to-talk audio is no pre-roll."""
    listener = Listener(None, score=scripted("#" * 20))
    play(listener, ramp(333))
    listener.commit()
    assert listener.set_detection(Detection()) == []
    (started,) = only(play(listener, ramp(300)), SpeechStarted)
    assert started.start_sample == started.speech_sample == hear_samples(333)


def test_a_longer_silence_holds_from_the_next_window_on() -> None:
    """Changed in mid-speech, the new silence length decides."""
    listener = Listener(Detection(), score=scripted("#" * 30))
    events = play(listener, ramp(600))
    events += listener.set_detection(Detection(endpoint=FixedSilence(silence_ms=1500)))
    events += play(listener, ramp(1600))
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == hear_samples(600 + 1500)


def test_a_new_threshold_makes_a_new_detector() -> None:
    """Only the threshold does; other settings keep what the detector has learnt."""
    made: list[float] = []

    def make(threshold: float) -> SpeechScore:
        made.append(threshold)
        return Script("")

    listener = Listener(Detection(0.5), score=make)
    listener.set_detection(Detection(0.5, prefix_padding_ms=100))
    listener.set_detection(Detection(0.9))
    assert made == [0.5, 0.9]


# --- bad input ------------------------------------------------------------------------------------


def test_half_a_sample_is_refused() -> None:
    """An odd number of bytes is named and changes nothing."""
    listener = Listener(None)
    with pytest.raises(OddAudioError, match="even number of bytes, got 3"):
        listener.feed(b"abc", 0)
    assert (listener.clock_samples, listener.open_ref) == (0, None)


def test_no_audio_is_no_event() -> None:
    """An empty packet begins nothing."""
    assert Listener(None).feed(b"", 0) == []
