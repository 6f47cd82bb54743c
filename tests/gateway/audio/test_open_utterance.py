"""A speaker's pauses, as the listener notices and reports them."""

from __future__ import annotations

from headstart.gateway.audio.clock import engine_samples_to_ms, ms_to_engine_samples
from headstart.gateway.audio.endpointing import EndpointVerdict, FixedSilence, Pause
from headstart.gateway.audio.open_utterance import CONTINUES_WITHIN_MS, Pauses
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SpeechChunk,
    SpeechResumed,
    SpeechSegmenter,
)
from tests.gateway.listening_bench import only, play, ramp, run_script, scripted


class Notes(FixedSilence):
    """Fixed silence that keeps what it was told, and asks again after 400 ms."""

    def __init__(self, silence_ms: int) -> None:
        super().__init__(silence_ms)
        object.__setattr__(self, "gaps_ms", [])
        object.__setattr__(self, "seen", [])

    def continued_after(self, silence_samples: int) -> None:
        self.gaps_ms.append(engine_samples_to_ms(silence_samples))

    def judge(self, pause: Pause) -> EndpointVerdict:
        self.seen.append(pause)
        if pause.silence_samples == ms_to_engine_samples(400):
            return EndpointVerdict.RECHECK
        return super().judge(pause)

    gaps_ms: list[int]
    seen: list[Pause]


def test_an_inner_pause_is_told_with_its_length() -> None:
    """Speech, 300 ms of silence, speech: the policy learns 300 ms, give or take a window or two
    of the hysteresis. The silence behind the last word is no inner pause."""
    notes = Notes(500)
    run_script("#" * 20 + "." * 15 + "#" * 20 + "." * 40, Detection(endpoint=notes))
    assert len(notes.gaps_ms) == 1
    assert 300 <= notes.gaps_ms[0] <= 340


def test_an_endpoint_that_came_too_early_is_told_too() -> None:
    """Speech soon after it goes on with the turn; later speech is another turn."""
    for gap_windows, told in ((40, 1), (80, 0)):
        notes = Notes(500)
        run_script("#" * 20 + "." * gap_windows + "#" * 20 + "." * 40, Detection(endpoint=notes))
        assert len(notes.gaps_ms) == told
        if told:
            assert notes.gaps_ms == [800]


def test_a_commit_is_no_pause() -> None:
    """Only silence tells of pauses; and one report each."""
    pauses = Pauses()
    pauses.ended(16_000, 17_000, counts=False)
    assert pauses.began(18_000) == 0
    pauses.ended(16_000, 17_000, counts=True)
    late = 17_000 + ms_to_engine_samples(CONTINUES_WITHIN_MS)
    assert pauses.began(late) == late - 16_000
    assert pauses.began(late) == 0
    pauses.ended(16_000, 17_000, counts=True)
    assert pauses.began(late + 1) == 0


def test_a_second_look_delivers_the_silence_since() -> None:
    """Two hushes of one revision, each behind all the audio up to it; then a new revision."""
    notes = Notes(800)
    events = run_script("#" * 20 + "." * 30 + "#" * 20, Detection(endpoint=notes))
    hushes = only(events, PauseDetected)
    assert [hush.ref for hush in hushes] == [hushes[0].ref] * 2
    assert hushes[1].end_sample - hushes[0].end_sample == ms_to_engine_samples(200)
    ends = [chunk.end_sample for chunk in only(events, SpeechChunk)]
    assert {hush.end_sample for hush in hushes} <= set(ends)
    assert max(pause.checks for pause in notes.seen) == 2
    assert only(events, SpeechResumed)[0].ref.revision == hushes[0].ref.revision + 1


def test_the_models_word_counts_for_its_pause_only() -> None:
    """It reaches the policy; a word about a revision that is over does not."""
    notes = Notes(800)
    listener = SpeechSegmenter(
        Detection(endpoint=notes), score=scripted("#" * 20 + "." * 15 + "#" * 5 + "." * 20)
    )
    sound = ramp(1200)
    at = 48 * 620  # 220 ms into the pause
    (hush,) = only(play(listener, sound[:at]), PauseDetected)
    listener.set_end_probability(hush.ref, 0.25)
    play(listener, sound[at : at + 48 * 40])
    assert notes.seen[-1].end_probability == 0.25
    play(listener, sound[at + 48 * 40 :])
    listener.set_end_probability(hush.ref, 0.75)
    assert notes.seen[-1].end_probability is None
