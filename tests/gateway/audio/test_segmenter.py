"""The listening path: the same events however the audio is cut, and nothing said is lost."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import NS_PER_MS, ms_to_engine_samples
from headstart.gateway.audio.endpointing import FixedSilence
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.segmenter import (
    Detection,
    DropReason,
    PauseDetected,
    SegmenterSettings,
    SpeechChunk,
    SpeechEvent,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceDropped,
)
from headstart.gateway.audio.vad import WINDOW_MS
from tests.gateway import speech
from tests.gateway.listening_bench import (
    delivered,
    names,
    only,
    play,
    ramp,
    run_script,
    scripted,
    story,
)

SIZES = [1, 7, 160, 511, 512, 513, 4800, 64_000]

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
    expected = story(play(SpeechSegmenter(Detection()), CONVERSATION, size=480))
    assert names(expected) == [
        *(
            "SpeechStarted",
            "SpeechChunk",
            "SpeechChunk",
            "SpeechChunk",
            "PauseDetected",
            "SpeechStopped",
        ),
        *(
            "SpeechStarted",
            "SpeechChunk",
            "SpeechChunk",
            "PauseDetected",
            "SpeechResumed",
            "SpeechChunk",
        ),
        *("SpeechChunk", "PauseDetected", "SpeechStopped"),
    ]
    assert story(play(SpeechSegmenter(Detection()), CONVERSATION, size, speed)) == expected


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9000), max_size=10),
    chunk_ms=st.sampled_from([200, 500, 1000]),
    by_hand=st.booleans(),
)
def test_random_cuts_do_not_matter(sizes: list[int], chunk_ms: int, by_hand: bool) -> None:
    """Nor do packets of ever-changing sizes, under VAD and under push-to-talk."""

    def run(cuts: list[int]) -> list[SpeechEvent]:
        detection = None if by_hand else Detection()
        listener = SpeechSegmenter(detection, SegmenterSettings(chunk_ms=chunk_ms))
        events: list[SpeechEvent] = []
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
                short = len(event.pcm) // 2 < ms_to_engine_samples(chunk_ms)
            case PauseDetected():
                assert (event.ref, event.end_sample) == (ref, end)
                hushed = True
            case SpeechResumed():
                assert ref is not None
                assert event.ref == TurnRef(ref.turn, ref.revision + 1)
                ref, short, hushed = event.ref, False, False
            case SpeechStopped():
                assert (event.ref, event.end_sample) == (ref, end)
                assert event.last_speech_sample <= end <= event.endpoint_sample
                assert hushed
                ref = None
            case UtteranceDropped():
                assert event.ref == ref
                ref = None


# --- server VAD ---------------------------------------------------------------------------------


def test_first_words_are_kept() -> None:
    """The utterance begins `prefix_padding_ms` before the first speech window, and its audio is
    the resampled stream from there on, sample for sample."""
    pattern = "." * 50 + "#" * 50 + "." * 30
    events = run_script(pattern)
    (started,) = only(events, SpeechStarted)
    assert started.speech_sample == ms_to_engine_samples(1000)
    assert started.start_sample == ms_to_engine_samples(700)
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
    assert {len(c.pcm) // 2 for c in chunks[:-1]} == {ms_to_engine_samples(chunk_ms)}
    (hushed,) = only(events, PauseDetected)
    assert chunks[-1].end_sample == hushed.end_sample == ms_to_engine_samples(130 * WINDOW_MS + 200)
    assert events.index(hushed) == events.index(chunks[-1]) + 1


def test_a_hush_then_the_endpoint() -> None:
    """The hush comes 200 ms and the endpoint 500 ms after the last speech, on the sample clock;
    wall time enters only as the receipt of the last speech window."""
    events = run_script("." * 20 + "#" * 50 + "." * 40)
    assert names(events)[-2:] == ["PauseDetected", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.SILENCE
    assert stopped.last_speech_sample == ms_to_engine_samples(1400)
    assert stopped.last_speech_received_ns == 1400 * NS_PER_MS
    assert stopped.end_sample == ms_to_engine_samples(1600)
    assert stopped.endpoint_sample == ms_to_engine_samples(1900)
    assert stopped.audio_end_ms == 1900
    assert stopped.realtime


def test_silence_as_short_as_the_hush_still_hushes_first() -> None:
    """With the protocol's 200 ms of silence, hush and endpoint come in one window, in order."""
    detection = Detection(endpoint=FixedSilence(silence_ms=200))
    events = run_script("#" * 30 + "." * 30, detection)
    assert names(events)[-3:] == ["SpeechChunk", "PauseDetected", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == stopped.end_sample == ms_to_engine_samples(800)


def test_resuming_within_the_hangover_loses_nothing() -> None:
    """Speech again after 320 ms: one turn, a new revision, and the gap's audio is delivered."""
    events = run_script("#" * 30 + "." * 16 + "#" * 30 + "." * 30)
    assert len(only(events, SpeechStarted)) == len(only(events, SpeechStopped)) == 1
    (resumed,) = only(events, SpeechResumed)
    assert resumed.ref == TurnRef(1, 1)
    assert resumed.at_sample == ms_to_engine_samples((30 + 16 + 2) * WINDOW_MS)
    hushes = only(events, PauseDetected)
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
    assert names(events) == ["SpeechStarted", "SpeechChunk", "UtteranceDropped"]
    (dropped,) = only(events, UtteranceDropped)
    assert dropped.reason is DropReason.TOO_SHORT


def test_one_word_is_a_turn() -> None:
    """A spoken "ok" of 200 ms is heard whole, by the real detector."""
    word = speech.join(speech.hiss(1000), speech.voice(200), speech.hiss(1000))
    events = play(SpeechSegmenter(Detection()), word)
    assert names(events) == [
        "SpeechStarted",
        "SpeechChunk",
        "SpeechChunk",
        "PauseDetected",
        "SpeechStopped",
    ]
    started, stopped = only(events, SpeechStarted)[0], only(events, SpeechStopped)[0]
    assert started.start_sample <= ms_to_engine_samples(740)
    assert stopped.end_sample >= ms_to_engine_samples(1200)


MOST_HELD_BYTES = 128 << 10
"""A chunk, the pre-roll and a packet take some 60 kB; a minute of sound takes 1.9 MB."""


@contextlib.contextmanager
def held_bytes() -> Iterator[Callable[[], int]]:
    """How much of the memory that was allocated in here is still held."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_ten_minutes_of_silence_are_free() -> None:
    """Nothing happens, nothing piles up, and the first word after it is heard in its place."""
    listener = SpeechSegmenter(Detection())
    minute = speech.hiss(60_000).tobytes()
    assert play(listener, minute, size=24_000) == []
    with held_bytes() as held:
        for _ in range(9):
            assert play(listener, minute, size=24_000) == []
            assert held() <= MOST_HELD_BYTES
    events = play(listener, speech.join(speech.voice(500), speech.hiss(800)))
    (started,) = only(events, SpeechStarted)
    assert abs(started.speech_sample - ms_to_engine_samples(600_000)) <= ms_to_engine_samples(40)
    assert len(only(events, SpeechStopped)) == 1


def test_a_minute_of_unbroken_speech() -> None:
    """One turn, 120 chunks of 500 ms, and no more held at its end than at its beginning."""
    listener = SpeechSegmenter(Detection())
    voice = speech.voice(5000).tobytes()
    events = play(listener, voice)
    assert len(only(events, SpeechStarted)) == 1
    delivered_bytes = len(delivered(events))
    with held_bytes() as held:
        for _ in range(11):
            events = play(listener, voice)
            assert set(names(events)) == {"SpeechChunk"}
            delivered_bytes += len(delivered(events))
            del events
            assert held() <= MOST_HELD_BYTES
    assert delivered_bytes // 2 == ms_to_engine_samples(60_000)


def test_speech_without_end_is_cut_at_the_limit() -> None:
    """After `max_utterance_s` the turn ends with cause LIMIT and the next one follows on it
    without a gap."""
    listener = SpeechSegmenter(
        Detection(), SegmenterSettings(max_utterance_s=2), score=scripted("#" * 150)
    )
    events = play(listener, ramp(3000))
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.cause, stopped.end_sample) == (StopCause.LIMIT, ms_to_engine_samples(2000))
    assert only(events, SpeechStarted)[1].start_sample == ms_to_engine_samples(2000)


def test_two_quick_turns() -> None:
    """A second turn right behind the first endpoint has its own number and begins where the first
    one's audio ended, or later."""
    events = run_script("#" * 20 + "." * 26 + "#" * 20 + "." * 26)
    assert [e.ref.turn for e in only(events, SpeechStopped)] == [1, 2]


def test_a_huge_packet_may_hold_two_turns() -> None:
    """Both come out, in order, and are marked as not having come in real time."""
    events = SpeechSegmenter(Detection()).feed(CONVERSATION, received_ns=7)
    stops = only(events, SpeechStopped)
    assert [s.ref.turn for s in stops] == [1, 2]
    assert [s.realtime for s in stops] == [False, False]
    assert {s.last_speech_received_ns for s in stops} == {7}


def test_capture_stamps_belong_to_the_last_speech() -> None:
    """The stop carries the stamp of the packet with the last speech, not of the last packet."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 20 + "." * 40))
    events: list[SpeechEvent] = []
    pcm = ramp(1200)
    for i in range(60):
        packet = pcm[i * 960 : (i + 1) * 960]
        events += listener.feed(packet, received_ns=1000 + i, captured_ns=i if i < 30 else None)
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.last_speech_received_ns, stopped.last_speech_captured_ns) == (1019, 19)
