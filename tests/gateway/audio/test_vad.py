"""Fixed windows and hysteresis: what counts as speech, and from where to where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.audio.vad import (
    SILENCE_DBFS,
    WINDOW_BYTES,
    WINDOW_SAMPLES,
    GateState,
    HysteresisSettings,
    Samples,
    VadHysteresis,
    VadWindow,
    VadWindows,
    WebRtcScore,
    energy_dbfs,
)
from tests.gateway import speech
from tests.gateway.listening_bench import Script


def heard(*parts: Samples) -> bytes:
    """The parts at 16 kHz."""
    return StreamResampler(24_000, 16_000).feed_pcm(speech.join(*parts))


def windows_of(pattern: str) -> list[VadWindow]:
    """One window a character; `#` is speech."""
    return [VadWindow(i * WINDOW_SAMPLES, c == "#") for i, c in enumerate(pattern)]


def states(pattern: str, gate: VadHysteresis) -> list[GateState]:
    return [gate.push(window) for window in windows_of(pattern)]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=8))
def test_windows_do_not_depend_on_packets(sizes: list[int]) -> None:
    """However the samples are cut, the windows and their scores are the same."""
    pcm = heard(speech.hiss(200), speech.voice(400), speech.hiss(300))
    whole = VadWindows(WebRtcScore()).feed(pcm)
    cutter, cut, at, i = VadWindows(WebRtcScore()), [], 0, 0
    while at < len(pcm):
        size = 2 * sizes[i % len(sizes)]
        cut += cutter.feed(pcm[at : at + size])
        at += size
        i += 1
    assert cut == whole
    assert len(whole) == len(pcm) // WINDOW_BYTES
    missing = WINDOW_BYTES - len(pcm) % WINDOW_BYTES  # what is left over waits for the next call
    assert cutter.feed(bytes(missing - 2)) == []
    assert len(cutter.feed(bytes(2))) == 1


@given(pattern=st.text("#.", max_size=12), sizes=st.lists(st.integers(1, 900), min_size=1))
def test_windows_before_speech_can_be_left_out(pattern: str, sizes: list[int]) -> None:
    """From the first with speech on, of each packet; the sample numbers stay."""
    every, some = VadWindows(Script(pattern)), VadWindows(Script(pattern))
    for size in sizes:
        windows = every.feed(bytes(2 * size))
        speech = [w.is_speech for w in windows]
        first = speech.index(True) if any(speech) else len(windows)
        assert some.feed(bytes(2 * size), from_speech=True) == windows[first:]


def test_windows_count_from_where_they_are_told() -> None:
    """A detector started in mid-session has the session's sample numbers."""
    windows = VadWindows(WebRtcScore(), start_sample=1000).feed(bytes(1400))
    assert [w.start_sample for w in windows] == [1000, 1320]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_voice_is_speech_and_a_quiet_room_is_not(threshold: float) -> None:
    """At every threshold the synthetic voice is heard and a -75 dBFS hiss is not."""
    windows = VadWindows(WebRtcScore(threshold)).feed(heard(speech.hiss(1000), speech.voice(1000)))
    assert not any(w.is_speech for w in windows[:50])
    assert sum(w.is_speech for w in windows[50:]) >= 45


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_a_noisy_room_is_not_speech_from_the_first_window_on(threshold: float) -> None:
    """Noise of -44 dBFS, which a fresh webrtcvad takes for speech, begins nothing."""
    windows = VadWindows(WebRtcScore(threshold)).feed(heard(speech.hiss(2000, level=200)))
    assert not any(w.is_speech for w in windows)


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_near_digital_silence_is_never_speech(threshold: float) -> None:
    """A voice scaled down to a few units is below the floor, whatever the model says."""
    faint = (speech.voice(1000) // 2000).astype(np.int16)
    assert not any(w.is_speech for w in VadWindows(WebRtcScore(threshold)).feed(heard(faint)))


@pytest.mark.parametrize(
    ("threshold", "aggressiveness"), [(0.0, 0), (0.24, 0), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 3)]
)
def test_threshold_sets_aggressiveness_and_floor(threshold: float, aggressiveness: int) -> None:
    """The protocol's 0..1 is the model's 0..3 in quarters, and raises the floor."""
    score = WebRtcScore(threshold)
    assert score.aggressiveness == aggressiveness
    assert score.floor_dbfs == pytest.approx(-65.0 + 20.0 * threshold)


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_threshold_outside_its_range_is_refused(threshold: float) -> None:
    """0..1 and nothing else, NaN included."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        WebRtcScore(threshold)


def test_levels_are_decibels_below_full_scale() -> None:
    """Full scale is 0 dBFS, a tenth of it -20, and nothing at all the agreed -100."""
    square = np.where(np.arange(320) % 2, 32767, -32767).astype(np.int16)
    assert energy_dbfs(square.tobytes()) == pytest.approx(0.0, abs=0.01)
    assert energy_dbfs((square / 10).astype(np.int16).tobytes()) == pytest.approx(-20.0, abs=0.01)
    assert energy_dbfs(bytes(640)) == SILENCE_DBFS


def test_one_click_is_no_beginning() -> None:
    """Two windows in five are not enough; the third is, and the start is the first of them."""
    gate = VadHysteresis()
    assert states(".#...#.....", gate)[-1] is GateState.QUIET
    assert not gate.is_open
    gate = VadHysteresis()
    assert states("....#.##", gate)[-1] is GateState.SPEAKING
    assert gate.speech_start == 4 * WINDOW_SAMPLES
    assert gate.speech_end == 8 * WINDOW_SAMPLES
    assert gate.speech_samples == 3 * WINDOW_SAMPLES


def test_states_pass_through_starting_and_stopping() -> None:
    """Quiet, starting, speaking, stopping, speaking again: in that order."""
    q, a, s, p = GateState.QUIET, GateState.STARTING, GateState.SPEAKING, GateState.STOPPING
    assert states(".###..##", VadHysteresis()) == [q, a, a, s, p, p, p, s]


def test_one_click_does_not_end_a_pause() -> None:
    """In a long pause a lone speech window leaves the pause's start where it was."""
    gate = VadHysteresis()
    states("###", gate)
    end = gate.speech_end
    states("....#...", gate)
    assert gate.state is GateState.STOPPING
    assert gate.speech_end == end


def test_a_dropped_window_inside_speech_costs_nothing() -> None:
    """One silent window between speech windows does not hold up the end of speech."""
    gate = VadHysteresis()
    states("####.#", gate)
    assert gate.state is GateState.SPEAKING
    assert gate.speech_end == 6 * WINDOW_SAMPLES


def test_closing_forgets_the_windows_before() -> None:
    """After an utterance, its last windows do not help to begin the next one."""
    gate = VadHysteresis()
    states("####", gate)
    gate.close()
    assert states("##", gate)[-1] is GateState.STARTING


def test_push_to_talk_can_be_handed_over() -> None:
    """An utterance declared open counts its silence from the hand-over."""
    gate = VadHysteresis()
    gate.open_at(start_sample=100, now_sample=5000, speech_samples=1600)
    assert gate.is_open
    assert (gate.speech_start, gate.speech_end, gate.speech_samples) == (100, 5000, 1600)


@pytest.mark.parametrize("rule", [{"start_speech": 0}, {"start_speech": 6}, {"resume_speech": 4}])
def test_impossible_hysteresis_is_refused(rule: dict[str, int]) -> None:
    """k of n needs 1 <= k <= n."""
    with pytest.raises(ValueError, match=r"must be 1\.\."):
        HysteresisSettings(**rule)
