"""Voice activity detection: fixed 20 ms windows whatever the packet size, then hysteresis.

`VadWindows` splits the stream of 16 kHz samples into windows and scores each one. `VadHysteresis`
turns the windows' scores into a start and an end of speech, so that one click or one unvoiced sound
changes neither. Both are pure functions of the samples: packets of any size give the same windows.

"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import webrtcvad

from headstart.gateway.audio.clock import ENGINE_RATE_HZ, ms_to_engine_samples
from headstart.gateway.audio.native import native_audio
from headstart.gateway.audio.tones import HEARD_SAMPLES, Tone, tone_in

Samples = npt.NDArray[np.int16]

logger = logging.getLogger(__name__)

WINDOW_MS = 20
WINDOW_SAMPLES = ms_to_engine_samples(WINDOW_MS)
WINDOW_BYTES = 2 * WINDOW_SAMPLES
FULL_SCALE = 32768.0
SILENCE_DBFS = -100.0  # the level of digital silence, since log(0) is undefined

# The energy below which a window is never speech, as a linear function of the protocol's threshold.
# Quiet speech at a laptop is about -45 dBFS, a quiet room about -65.
FLOOR_DBFS_AT_0 = -65.0
FLOOR_DBFS_PER_UNIT = 20.0

# A new webrtcvad takes the first 80 ms of any noise for speech until it has learnt it. Speech in
# the first windows is therefore detected 100 ms late, and the pre-roll covers the gap.
WARM_UP_WINDOWS = 5

# Voiced windows: a human pitch, searched in two windows at a quarter of the rate.
PITCH_DECIMATION = 4
PITCH_LAGS = np.arange(10, 58)  # 400 to 70 Hz at that rate
LEAST_VOICING = 0.65
GOING_ON_VOICING = 0.5  # of who is speaking already: noise hides a weak voice's pitch
LEAST_VOICED_WINDOWS = 3  # the vowel of a short "yes" has four; a distant voice seldom reaches two
VOICE_LASTS_WINDOWS = 15  # unvoiced sounds and their neighbours, as in "sixth"

# Behind a tone comes the next one of a melody: what is not steady while one ends and the other
# begins is shorter than this.
VOICED_WINDOWS_BEHIND_TONE = 8
TONE_LASTS_WINDOWS = 15
# What may be a tone is waited out; when it was a voice, it began before that.
DOUBT_WINDOWS_MAX = 24
DOUBT_ENDS_WINDOWS = 15  # without a pitch
# Whoever spoke just now goes on without a doubt, or the endpoint comes first.
SPOKE_LATELY_WINDOWS = 50

# The room is learnt from what is not voiced: in a third of a second downwards, in seconds upwards.
NOISE_FLOOR_FALL_SHARE = 0.1
NOISE_FLOOR_RISE_SHARE = 0.05
NOISE_FLOOR_MARGIN_DB = 8.0
# Who is speaking already need not stand out as far, nor hold a vowel as long, to go on. But other
# people who talk in the room are not that voice: they are further away. Where they can be heard at
# all, what lies more than so far under the voice's own level is theirs.
GOING_ON_WINDOWS = 40
GOING_ON_MARGIN_DB = 3.0
GOING_ON_VOICED_WINDOWS = 2
VOICE_SPAN_DB = 12.0
QUIET_ROOM_DB = 25.0  # over the room: nobody else is that loud in it
VOICE_RISE_SHARE, VOICE_FALL_SHARE = 0.1, 0.01

# The background, other people's talk included: a low quantile of the last three seconds' levels.
# One voice falls to it between its words. Levels over 100 ms, since talk fluctuates by the window.
BACKGROUND_WINDOWS = 150
BACKGROUND_SHARE = 0.15
BACKGROUND_BINS_PER_DB = 2
BACKGROUND_BINS = 201
LEVEL_WINDOWS = 5
BEGINNING_LEVEL_WINDOWS = 3
BEGINNING_OVER_BACKGROUND_DB = 8.0
GOING_ON_OVER_BACKGROUND_DB = 4.5
# Or the background is this voice's own level, in a sentence without a gap: several people at once
# never have a pitch as clear for as long (six of them: four windows at most in a minute).
CLEAR_VOICING = 0.8
LEAST_CLEAR_WINDOWS = 6

# A voice began where it was first heard above the background, if only faintly.
FAINT_VOICING = 0.6
FAINT_OVER_BACKGROUND_DB = 5.0
FAINT_LASTS_WINDOWS = 12


class SpeechScore(Protocol):
    """Judges windows; may keep state from one window to the next."""

    def judge(self, pcm: bytes) -> bytes:
        """`pcm`: s16[n, 320] at 16 kHz. For each of the n windows, 0, or 1 for speech; 1 + k for
        speech that had begun k windows before, when that was not sure yet."""
        ...


class NoiseFloor:
    """The background level: it falls faster than it rises. It starts as silence, so that early
    speech is not taken for background."""

    def __init__(self) -> None:
        self.level_dbfs = SILENCE_DBFS

    def learn(self, energy_dbfs: float) -> None:
        """Learn from one more window without speech."""
        share = NOISE_FLOOR_FALL_SHARE if energy_dbfs < self.level_dbfs else NOISE_FLOOR_RISE_SHARE
        self.level_dbfs += share * (energy_dbfs - self.level_dbfs)


class Background:
    """The level of all that is not the one voice, and the level of the latest sound.

    `level_dbfs`: exceeded for `1 - BACKGROUND_SHARE` of the last 150 windows, to half a decibel.
    """

    def __init__(self) -> None:
        self._mean_squares = deque([0.0] * LEVEL_WINDOWS, LEVEL_WINDOWS)
        self._bins: deque[int] = deque(maxlen=BACKGROUND_WINDOWS)
        self._counts = [0] * BACKGROUND_BINS
        self._known = 0  # windows whose mean squares are held

    def learn(self, mean_square: float) -> None:
        """Learn from the next window's mean square."""
        self._mean_squares.append(mean_square)
        self._known = min(self._known + 1, LEVEL_WINDOWS)
        if len(self._bins) == BACKGROUND_WINDOWS:
            self._counts[self._bins[0]] -= 1
        level_bin = int((self.recent_dbfs(LEVEL_WINDOWS) - SILENCE_DBFS) * BACKGROUND_BINS_PER_DB)
        self._bins.append(min(level_bin, BACKGROUND_BINS - 1))
        self._counts[self._bins[-1]] += 1

    def recent_dbfs(self, windows: int) -> float:
        """The level of the last so many windows together, at most `LEVEL_WINDOWS`."""
        windows = min(windows, self._known)
        total = 0.0
        for mean_square in list(self._mean_squares)[LEVEL_WINDOWS - windows :]:
            total += mean_square  # in this order, as in native.c
        return level_dbfs(total / windows)

    @property
    def level_dbfs(self) -> float:
        below = int(BACKGROUND_SHARE * len(self._bins))
        level_bin = 0
        while self._counts[level_bin] <= below:
            below -= self._counts[level_bin]
            level_bin += 1
        return SILENCE_DBFS + level_bin / BACKGROUND_BINS_PER_DB


def voicing(last: bytes, window: bytes) -> float:
    """How periodic two windows of s16[320] at 16 kHz are: see `numpy_voicing`."""
    compiled = native_audio()
    if compiled is not None:
        return compiled.voicing(last, window)
    return numpy_voicing(np.frombuffer(last + window, np.int16))


def numpy_voicing(window: Samples) -> float:
    """How periodic int16[640] at 16 kHz is at a voice's pitch: from 0, noise, to 1, a held vowel.

    The highest normalised autocorrelation at 70 to 400 Hz, of the audio below about 1 kHz.

    """
    low = window.reshape(-1, PITCH_DECIMATION).mean(axis=1, dtype=np.float32)
    low = low[1:] + low[:-1]
    low -= low.mean()
    full = np.correlate(low, low, "full")[len(low) - 1 :]
    # Each lag is normalised by the energy of the two compared stretches, not of the whole.
    energy = np.cumsum(low * low)
    lags = PITCH_LAGS
    ahead, behind = energy[-1] - energy[lags - 1], energy[len(low) - 1 - lags]
    scale = np.sqrt(np.maximum(ahead * behind, 1e-3))
    return float((full[lags] / scale).max())


class WebRtcScore:
    """The WebRTC project's VAD, combined with an energy floor and a voicing check.

    `threshold` 0..1, as in the protocol's `turn_detection`, selects the aggressiveness 0..3 in
    equal quarters and the floor from -65 to -45 dBFS. Raises ValueError outside 0..1.

    The VAD alone accepts breath, coughs, keys and rain as speech. So a window must also be within
    300 ms after a voiced one (the pre-roll covers an unvoiced first sound), and voiced windows must
    exceed the noise floor and the background: a radio next door and other people's talk do not.
    Whispering is not detected. Tones (`headstart.gateway.audio.tones`) begin nothing; they are
    learnt as part of the noise floor.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        if not 0.0 <= threshold <= 1.0:  # false for NaN too
            raise ValueError(f"threshold must be between 0 and 1, got {threshold}")
        self.aggressiveness = min(3, int(threshold * 4))
        self.floor_dbfs = FLOOR_DBFS_AT_0 + FLOOR_DBFS_PER_UNIT * threshold
        self.vad = webrtcvad.Vad(self.aggressiveness)
        self._warming_up = WARM_UP_WINDOWS
        self._room = NoiseFloor()
        self._background = Background()
        self._last = bytes(WINDOW_BYTES)
        self._voiced_windows = 0  # without a break
        self._since_voice = SPOKE_LATELY_WINDOWS
        self._since_tone = TONE_LASTS_WINDOWS
        self._voice_dbfs = SILENCE_DBFS
        self._unpitched = 0  # windows since the last pitch
        self._doubted = 0  # windows since what may be a beginning was not sure
        self._clear_windows = 0  # without a break
        self._since_faint = FAINT_LASTS_WINDOWS
        self._faint_windows = 0  # from where a voice was first heard faintly

    def judge(self, pcm: bytes) -> bytes:
        cuts = (pcm[at : at + WINDOW_BYTES] for at in range(0, len(pcm), WINDOW_BYTES))
        return bytes(self._is_speech(window) for window in cuts)

    def _is_speech(self, window: bytes) -> int:
        # Asked even below the floor: it learns the noise from every window it sees.
        square = mean_square(window)
        self._background.learn(square)
        energy_dbfs = level_dbfs(square)
        self._since_tone += 1
        likely = bool(self.vad.is_speech(window, ENGINE_RATE_HZ))
        likely = likely and energy_dbfs >= self.floor_dbfs
        last, self._last = self._last, window
        pitch = voicing(last, window) if likely else 0.0
        self._clear_windows = self._clear_windows + 1 if pitch >= CLEAR_VOICING else 0
        speaking = self._since_voice < VOICE_LASTS_WINDOWS
        going_on = self._since_voice < GOING_ON_WINDOWS
        pitched = pitch >= (GOING_ON_VOICING if going_on else LEAST_VOICING)
        tone = self._tone(last, window) if pitched and not speaking else Tone.NO
        self._doubt(tone, pitched=pitched, speaking=speaking)
        has_voice = pitched and tone is not Tone.YES
        if not has_voice and not speaking:
            self._room.learn(energy_dbfs)
        self._find_faint(pitch, energy_dbfs, going_on)
        if not (has_voice and self._stands_out(energy_dbfs, going_on)):
            self._voiced_windows = 0
        elif tone is Tone.NO:
            self._voiced_windows += 1
        is_voice = self._voiced_windows >= self._least_voiced(going_on)
        if is_voice:
            self._learn_voice(energy_dbfs, going_on)
        self._since_voice = 0 if is_voice else self._since_voice + 1
        if self._warming_up:
            self._warming_up -= 1
            return 0
        earlier = max(self._doubted, self._faint_windows - 1)
        return (1 + earlier) * (likely and self._since_voice < VOICE_LASTS_WINDOWS)

    def _stands_out(self, energy_dbfs: float, going_on: bool) -> bool:
        if energy_dbfs < self._room.level_dbfs + self._margin_db(going_on):
            return False
        if self._clear_windows >= LEAST_CLEAR_WINDOWS:
            return True
        over_db = GOING_ON_OVER_BACKGROUND_DB if going_on else BEGINNING_OVER_BACKGROUND_DB
        windows = LEVEL_WINDOWS if going_on else BEGINNING_LEVEL_WINDOWS
        return self._background.recent_dbfs(windows) >= self._background.level_dbfs + over_db

    def _find_faint(self, pitch: float, energy_dbfs: float, going_on: bool) -> None:
        level = max(self._room.level_dbfs, self._background.level_dbfs)
        faint = pitch >= FAINT_VOICING and energy_dbfs >= level + FAINT_OVER_BACKGROUND_DB
        self._since_faint = 0 if faint else self._since_faint + 1
        if going_on or self._since_faint >= FAINT_LASTS_WINDOWS:
            self._faint_windows = 0
        elif self._faint_windows or faint:
            self._faint_windows = min(self._faint_windows + 1, DOUBT_WINDOWS_MAX + 1)

    def _doubt(self, tone: Tone, *, pitched: bool, speaking: bool) -> None:
        self._unpitched = 0 if pitched else self._unpitched + 1
        if speaking or self._unpitched >= DOUBT_ENDS_WINDOWS:
            self._doubted = 0
        elif self._doubted or tone is not Tone.NO:
            self._doubted = min(self._doubted + 1, DOUBT_WINDOWS_MAX)

    def _margin_db(self, going_on: bool) -> float:
        """How far a voice stands out of the room at least."""
        if not going_on:
            return NOISE_FLOOR_MARGIN_DB
        near_db = self._voice_dbfs - VOICE_SPAN_DB - self._room.level_dbfs
        return max(GOING_ON_MARGIN_DB, min(near_db, QUIET_ROOM_DB))

    def _learn_voice(self, energy_dbfs: float, going_on: bool) -> None:
        louder_db = energy_dbfs - self._voice_dbfs
        share = VOICE_RISE_SHARE if louder_db > 0 else VOICE_FALL_SHARE
        self._voice_dbfs += (share if going_on else 1.0) * louder_db

    def _tone(self, last: bytes, window: bytes) -> Tone:
        tone = tone_in(np.frombuffer(last + window, np.int16)[-HEARD_SAMPLES:])
        self._since_tone = 0 if tone is Tone.YES else self._since_tone
        lately = self._since_voice < SPOKE_LATELY_WINDOWS
        return Tone.NO if lately and tone is Tone.MAYBE else tone

    def _least_voiced(self, going_on: bool) -> int:
        """Voiced windows in a row that are a voice."""
        behind_tone = self._since_tone < TONE_LASTS_WINDOWS
        if going_on:
            return GOING_ON_VOICED_WINDOWS
        return VOICED_WINDOWS_BEHIND_TONE if behind_tone else LEAST_VOICED_WINDOWS


class VadWindow(NamedTuple):
    """One scored window, [start_sample, start_sample + 320) on the session's clock."""

    start_sample: int
    is_speech: bool
    doubted_windows: int = 0
    """Speech had begun so many windows before this one."""

    @property
    def end_sample(self) -> int:
        return self.start_sample + WINDOW_SAMPLES


def mean_square(window: bytes) -> float:
    """Of s16 samples, about their mean: a constant offset is no sound."""
    compiled = native_audio()
    if compiled is not None:
        return compiled.mean_square(window)
    wide = np.frombuffer(window, np.int16).astype(np.int64)
    n = len(wide)
    return float(n * int(wide @ wide) - int(wide.sum()) ** 2) / float(n * n)


def level_dbfs(mean_square: float) -> float:
    """A mean square of s16 samples against full scale, in dB; digital silence is -100."""
    if mean_square <= 0.0:
        return SILENCE_DBFS
    return max(SILENCE_DBFS, 10.0 * math.log10(mean_square / FULL_SCALE**2))


def energy_dbfs(window: bytes) -> float:
    """RMS level of s16 samples against full scale, in dB."""
    return level_dbfs(mean_square(window))


class VadWindows:
    """Splits samples into windows of 20 ms; less than 320 samples wait for the next call."""

    def __init__(self, score: SpeechScore, start_sample: int = 0) -> None:
        self.score = score
        self._next_sample = start_sample
        self._carry = b""

    def feed(self, pcm: bytes, *, from_speech: bool = False) -> list[VadWindow]:
        """s16 at 16 kHz, continuing the stream. Returns every filled window; `from_speech`: only
        from the first one with speech on (a quiet gate needs none before it)."""
        if self._carry:
            pcm, self._carry = self._carry + pcm, b""
        if rest_bytes := len(pcm) % WINDOW_BYTES:
            pcm, self._carry = pcm[:-rest_bytes], pcm[-rest_bytes:]
        speech = self.score.judge(pcm)
        start_sample = self._next_sample
        self._next_sample += len(speech) * WINDOW_SAMPLES
        first = len(speech) - len(speech.lstrip(b"\0")) if from_speech else 0
        if first == len(speech):  # as most packets
            return []
        return [
            VadWindow(start_sample + i * WINDOW_SAMPLES, speech[i] > 0, max(0, speech[i] - 1))
            for i in range(first, len(speech))
        ]


class GateState(Enum):
    """Whether somebody speaks, by the windows so far."""

    QUIET = "quiet"
    STARTING = "starting"  # some speech, not yet enough to be a start
    SPEAKING = "speaking"
    STOPPING = "stopping"  # a pause that may be the end


@dataclass(frozen=True)
class HysteresisSettings:
    """Speech starts when `start_speech` of the last `start_of` windows are speech, and resumes
    after a pause when `resume_speech` of the last `resume_of` are: one click does neither."""

    start_speech: int = 3
    start_of: int = 5
    resume_speech: int = 2
    resume_of: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.start_speech <= self.start_of:
            raise ValueError(f"start_speech must be 1..{self.start_of}, got {self.start_speech}")
        if not 1 <= self.resume_speech <= self.resume_of:
            raise ValueError(f"resume_speech must be 1..{self.resume_of}, got {self.resume_speech}")


class VadHysteresis:
    """Windows in, starts and pauses of speech out.

    `push` one window at a time; then read `state`, `speech_start` (first sample of the speech),
    `noticed_start` (of the first window that was sure to be speech), `speech_end` (first sample
    after the last speech) and `speech_samples` (without silence).

    """

    def __init__(self) -> None:
        self.hysteresis = HysteresisSettings()
        self.state = GateState.QUIET
        self.is_open = False
        self.is_quiet = True
        """Usually true. A window without speech then changes nothing and need not be pushed."""
        self.speech_start = 0
        self.noticed_start = 0
        self.speech_end = 0
        self.speech_samples = 0
        bound = max(self.hysteresis.start_of, self.hysteresis.resume_of)
        self._recent: deque[VadWindow] = deque(maxlen=bound)  # the oldest drops out

    def push(self, window: VadWindow) -> GateState:
        """Take the next window; returns the state after it."""
        self._recent.append(window)
        if self.is_open:
            self._push_open(window)
        else:
            self._push_quiet()
        return self.state

    def open_at(self, start_sample: int, now_sample: int, speech_samples: int) -> None:
        """Declare speech since `start_sample` (a change from push-to-talk to VAD): the next silence
        counts from `now_sample`."""
        self._recent.clear()
        self.speech_start = self.noticed_start = start_sample
        self.speech_end = now_sample
        self.speech_samples = speech_samples
        self._become(GateState.SPEAKING)

    def close(self) -> None:
        """The utterance is over: wait for the next one."""
        self._recent.clear()
        self.speech_samples = 0
        self._become(GateState.QUIET)

    def _push_quiet(self) -> None:
        rule = self.hysteresis
        speech = [w for w in list(self._recent)[-rule.start_of :] if w.is_speech]
        if len(speech) >= rule.start_speech:
            before = speech[0].doubted_windows * WINDOW_SAMPLES
            self.noticed_start = speech[0].start_sample
            self.speech_start = max(0, self.noticed_start - before)
            self.speech_end = speech[-1].end_sample
            self.speech_samples = len(speech) * WINDOW_SAMPLES
            self._become(GateState.SPEAKING)
        else:
            self._become(GateState.STARTING if speech else GateState.QUIET)

    def _push_open(self, window: VadWindow) -> None:
        if not window.is_speech:
            self._become(GateState.STOPPING)
            return
        self.speech_samples += WINDOW_SAMPLES
        if self.state is GateState.STOPPING:
            rule = self.hysteresis
            speech = [w for w in list(self._recent)[-rule.resume_of :] if w.is_speech]
            if len(speech) < rule.resume_speech:
                return
            self._become(GateState.SPEAKING)
        self.speech_end = window.end_sample

    def _become(self, state: GateState) -> None:
        if state is not self.state:
            logger.debug("speech gate: %s -> %s", self.state.value, state.value)
            self.state = state
            self.is_open = state in (GateState.SPEAKING, GateState.STOPPING)
            self.is_quiet = state is GateState.QUIET
