"""The listening path where the voice does not decide: mute, push-to-talk, commit, clear."""

from __future__ import annotations

import pytest

from headstart.engine.api import TurnRef
from headstart.gateway.audio.clock import NS_PER_MS, ms_to_engine_samples
from headstart.gateway.audio.endpointing import FixedSilence
from headstart.gateway.audio.segmenter import (
    CommitTooShortError,
    Detection,
    DropReason,
    OddAudioError,
    PauseDetected,
    SegmenterSettings,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceDropped,
    UtteranceTooLongError,
)
from headstart.gateway.audio.vad import SpeechScore
from tests.gateway import speech
from tests.gateway.listening_bench import (
    Script,
    delivered,
    names,
    only,
    play,
    ramp,
    scripted,
    watch,
)

# --- the watchdog -------------------------------------------------------------------------------


def test_mute_in_mid_word_ends_the_turn() -> None:
    """Packets cease in mid-speech: nothing before a second is up, then hush and endpoint, with the
    last speech received when it really was."""
    listener = SpeechSegmenter(Detection())
    began = play(listener, speech.join(speech.hiss(300), speech.voice(1000)))
    assert names(began)[0] == "SpeechStarted"
    assert watch(listener, 1300, 2300) == []
    events = watch(listener, 2300, 2500)
    assert names(events)[-2:] == ["PauseDetected", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.last_speech_received_ns <= 1300 * NS_PER_MS
    assert abs(stopped.last_speech_sample - ms_to_engine_samples(1300)) <= ms_to_engine_samples(120)
    assert listener.clock_samples == ms_to_engine_samples(1300 + 1000)


def test_the_watchdog_keeps_step_with_a_long_silence() -> None:
    """With 2 s of silence asked for, the gap is filled tick by tick until they are over."""
    listener = SpeechSegmenter(
        Detection(endpoint=FixedSilence(silence_ms=2000)), score=scripted("#" * 50)
    )
    play(listener, ramp(1000))
    events = watch(listener, 1100, 6000)
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == ms_to_engine_samples(3000)
    assert listener.clock_samples == ms_to_engine_samples(1000 + 2000)


def test_the_watchdog_sleeps_when_nobody_speaks() -> None:
    """Silence, push-to-talk and a session without a packet are none of its business."""
    quiet = SpeechSegmenter(Detection())
    assert quiet.tick(10**12) == []
    play(quiet, speech.hiss(500).tobytes())
    assert quiet.tick(10**12) == []
    by_hand = SpeechSegmenter(None)
    play(by_hand, ramp(500))
    assert by_hand.tick(10**12) == []
    assert names(by_hand.commit())[-1] == "SpeechStopped"


def test_packets_that_come_back_go_on_on_the_clock() -> None:
    """After the watchdog's silence the clock has moved on, and a new turn is numbered there."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 25 + "." * 50 + "#" * 25))
    play(listener, ramp(500))
    watch(listener, 600, 1600)
    assert listener.clock_samples == ms_to_engine_samples(500 + 1000)
    events = play(listener, ramp(500))
    assert only(events, SpeechStarted)[0].speech_sample == ms_to_engine_samples(1500)


# --- push-to-talk ---------------------------------------------------------------------------------


def test_push_to_talk_delivers_everything_appended() -> None:
    """The first append begins, chunks leave as they fill, commit flushes the last odd samples;
    every sample appended is in a chunk."""
    pcm = ramp(1234)[:-14]
    listener = SpeechSegmenter(None)
    events = play(listener, pcm, size=511)
    assert names(events) == ["SpeechStarted", "SpeechChunk", "SpeechChunk"]
    assert only(events, SpeechStarted)[0].push_to_talk
    events += listener.commit()
    assert names(events)[3:] == ["SpeechChunk", "SpeechStopped"]
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.COMMIT
    assert len(delivered(events)) // 2 == stopped.end_sample == -(-len(pcm) // 2 * 2 // 3)
    assert stopped.last_speech_sample == stopped.end_sample
    with pytest.raises(CommitTooShortError):
        listener.commit()  # nothing is open


def test_the_next_push_to_talk_turn_follows_on() -> None:
    """Its number is one higher and it begins at the sample where the last one ended."""
    listener = SpeechSegmenter(None)
    play(listener, ramp(307))
    (stopped,) = only(listener.commit(), SpeechStopped)
    (started,) = only(play(listener, ramp(200)), SpeechStarted)
    assert started.ref == TurnRef(2)
    assert started.start_sample == stopped.end_sample


@pytest.mark.parametrize("held_ms", [0, 5, 99])
def test_a_commit_needs_100_ms(held_ms: int) -> None:
    """Less is refused with what is there, to the sample, and the audio stays."""
    listener = SpeechSegmenter(None)
    play(listener, ramp(held_ms))
    with pytest.raises(CommitTooShortError, match=rf"at least 100 ms .* got {held_ms}\.00 ms"):
        listener.commit()
    play(listener, ramp(100 - held_ms))
    assert names(listener.commit()) == ["SpeechChunk", "SpeechStopped"]


def test_clear_drops() -> None:
    """The open utterance is dropped, and nothing of it comes back in the next."""
    listener = SpeechSegmenter(None)
    play(listener, ramp(345))
    (dropped,) = listener.clear()
    assert dropped == UtteranceDropped(TurnRef(1), DropReason.CLEARED, ms_to_engine_samples(345))
    assert listener.clear() == []
    (started,) = only(play(listener, ramp(200)), SpeechStarted)
    assert started.start_sample == ms_to_engine_samples(345)


def test_clear_empties_the_pre_roll() -> None:
    """Under VAD, audio before a clear is not pre-roll after it."""
    listener = SpeechSegmenter(Detection(), score=scripted("." * 20 + "#" * 20))
    play(listener, ramp(390))
    assert listener.clear() == []
    (started,) = only(play(listener, ramp(300)), SpeechStarted)
    assert started.start_sample == ms_to_engine_samples(390)


def test_push_to_talk_is_bounded() -> None:
    """The packet that would pass the limit is refused and named; the utterance can be committed."""
    listener = SpeechSegmenter(None, SegmenterSettings(max_utterance_s=1))
    play(listener, ramp(990))
    with pytest.raises(UtteranceTooLongError, match=r"may last 1 s, .* make it 1\.01 s"):
        listener.feed(ramp(20), 0)
    (stopped,) = only(listener.commit(), SpeechStopped)
    assert stopped.end_sample == ms_to_engine_samples(990)


# --- commit, clear and new settings under VAD -----------------------------------------------------


def test_commit_in_mid_speech_ends_it_there() -> None:
    """All audio up to the commit is delivered, the odd samples too."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 100))
    events = play(listener, ramp(715), size=480)
    events += listener.commit()
    (stopped,) = only(events, SpeechStopped)
    assert (stopped.cause, stopped.end_sample) == (StopCause.COMMIT, ms_to_engine_samples(715))
    assert len(delivered(events)) // 2 == ms_to_engine_samples(715)


def test_commit_in_a_hush_ends_where_the_hush_began() -> None:
    """So that the speculation stands: no chunk follows the hush."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 30 + "." * 30))
    events = play(listener, ramp(600 + 320))
    assert names(events)[-1] == "PauseDetected"
    (stopped,) = listener.commit()
    assert isinstance(stopped, SpeechStopped)
    assert stopped.end_sample == only(events, PauseDetected)[0].end_sample


def test_commit_without_speech_is_refused() -> None:
    """Under VAD, silence is no utterance: 0 ms to commit."""
    listener = SpeechSegmenter(Detection())
    play(listener, speech.hiss(1000).tobytes())
    with pytest.raises(CommitTooShortError, match=r"got 0\.00 ms"):
        listener.commit()


def test_the_ear_hears_on_after_commit_and_clear() -> None:
    """Odd cuts by commit and clear do not shift what comes after: windows stay on the clock."""
    listener = SpeechSegmenter(Detection())
    play(listener, speech.join(speech.hiss(300), speech.voice(503)))
    listener.commit()
    play(listener, speech.hiss(777).tobytes())
    listener.clear()
    at = listener.clock_samples
    events = play(listener, speech.join(speech.hiss(700), speech.voice(600), speech.hiss(700)))
    (started,) = only(events, SpeechStarted)
    assert abs(started.speech_sample - at - ms_to_engine_samples(700)) <= ms_to_engine_samples(40)
    assert len(only(events, SpeechStopped)) == 1


def test_to_push_to_talk_in_mid_speech() -> None:
    """The open utterance waits for its commit; silence no longer ends it; nothing is lost."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 30))
    events = play(listener, ramp(600))
    events += listener.set_detection(None)
    events += play(listener, ramp(2000))
    assert not only(events, PauseDetected)
    events += listener.commit()
    (stopped,) = only(events, SpeechStopped)
    assert len(delivered(events)) // 2 == stopped.end_sample == ms_to_engine_samples(2600)


def test_to_push_to_talk_in_a_hush() -> None:
    """The hush is taken back: a new revision, and the pause is delivered with the rest."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 30 + "." * 30))
    events = play(listener, ramp(900))
    assert names(events)[-1] == "PauseDetected"
    (resumed,) = listener.set_detection(None)
    assert isinstance(resumed, SpeechResumed)
    events += listener.commit()
    assert len(delivered(events)) // 2 == ms_to_engine_samples(900)


def test_to_vad_in_mid_utterance() -> None:
    """An utterance begun by hand ends by silence, counted from the change, and is not dropped."""
    listener = SpeechSegmenter(None, score=scripted(""))
    events = play(listener, ramp(600))
    events += listener.set_detection(Detection())
    events += play(listener, ramp(600))
    (stopped,) = only(events, SpeechStopped)
    assert stopped.cause is StopCause.SILENCE
    assert stopped.endpoint_sample == ms_to_engine_samples(600 + 500)


def test_to_vad_between_utterances() -> None:
    """The detector starts at the present sample; push-to-talk audio is no pre-roll."""
    listener = SpeechSegmenter(None, score=scripted("#" * 20))
    play(listener, ramp(333))
    listener.commit()
    assert listener.set_detection(Detection()) == []
    (started,) = only(play(listener, ramp(300)), SpeechStarted)
    assert started.start_sample == started.speech_sample == ms_to_engine_samples(333)


def test_a_longer_silence_holds_from_the_next_window_on() -> None:
    """Changed in mid-speech, the new silence length decides."""
    listener = SpeechSegmenter(Detection(), score=scripted("#" * 30))
    events = play(listener, ramp(600))
    events += listener.set_detection(Detection(endpoint=FixedSilence(silence_ms=1500)))
    events += play(listener, ramp(1600))
    (stopped,) = only(events, SpeechStopped)
    assert stopped.endpoint_sample == ms_to_engine_samples(600 + 1500)


def test_a_new_threshold_makes_a_new_detector() -> None:
    """Only the threshold does; other settings keep what the detector has learnt."""
    made: list[float] = []

    def make(threshold: float) -> SpeechScore:
        made.append(threshold)
        return Script("")

    listener = SpeechSegmenter(Detection(0.5), score=make)
    listener.set_detection(Detection(0.5, prefix_padding_ms=100))
    listener.set_detection(Detection(0.9))
    assert made == [0.5, 0.9]


# --- bad input ------------------------------------------------------------------------------------


def test_half_a_sample_is_refused() -> None:
    """An odd number of bytes is named and changes nothing."""
    listener = SpeechSegmenter(None)
    with pytest.raises(OddAudioError, match="even number of bytes, got 3"):
        listener.feed(b"abc", 0)
    assert listener.clock_samples == 0
    assert names(listener.feed(bytes(480), 0)) == ["SpeechStarted"]


def test_no_audio_is_no_event() -> None:
    """An empty packet begins nothing."""
    assert SpeechSegmenter(None).feed(b"", 0) == []
