"""The compiled `headstart.gateway.audio.vad.WebRtcScore`: one call for all windows of a packet.

`native.c` calls the WebRTC project's VAD inside `webrtcvad`'s own library. If that hides its C
functions, or there is no compiler, the Python version is used; a test checks that both agree.

"""

from __future__ import annotations

import ctypes
import functools
import logging
from typing import Any

import _webrtcvad

from headstart.gateway.audio import tones, vad
from headstart.gateway.audio.native import CompiledNoiseFloor, NativeAudio, native_audio
from headstart.gateway.audio.vad import WINDOW_BYTES, WINDOW_SAMPLES, SpeechScore, WebRtcScore

log = logging.getLogger("headstart.vad")

CAPSULE = b"WebRtcVadPtr"
"""The name of the capsules in which `webrtcvad` holds its `VadInst` pointers."""


class _Score(ctypes.Structure):
    """`struct score` of native.c."""

    _fields_ = (
        ("process", ctypes.c_void_p),
        ("vad", ctypes.c_void_p),
        ("floor_dbfs", ctypes.c_double),
        ("silence_dbfs", ctypes.c_double),
        ("least_voicing", ctypes.c_double),
        ("going_on_voicing", ctypes.c_double),
        ("faint_voicing", ctypes.c_double),
        ("clear_voicing", ctypes.c_double),
        ("room_fall", ctypes.c_double),
        ("room_rise", ctypes.c_double),
        ("margin_db", ctypes.c_double),
        ("going_on_margin_db", ctypes.c_double),
        ("partials_rest", ctypes.c_double),
        ("maybe_partials_rest", ctypes.c_double),
        ("note_periodic", ctypes.c_double),
        ("maybe_note_periodic", ctypes.c_double),
        ("voice_span_db", ctypes.c_double),
        ("quiet_room_db", ctypes.c_double),
        ("voice_rise", ctypes.c_double),
        ("voice_fall", ctypes.c_double),
        ("background_share", ctypes.c_double),
        ("beginning_over_db", ctypes.c_double),
        ("going_on_over_db", ctypes.c_double),
        ("faint_over_db", ctypes.c_double),
        ("least_voiced", ctypes.c_long),
        ("going_on_voiced", ctypes.c_long),
        ("voice_lasts", ctypes.c_long),
        ("going_on_lasts", ctypes.c_long),
        ("behind_tone_voiced", ctypes.c_long),
        ("tone_lasts", ctypes.c_long),
        ("doubt_max", ctypes.c_long),
        ("doubt_ends", ctypes.c_long),
        ("spoke_lately", ctypes.c_long),
        ("faint_lasts", ctypes.c_long),
        ("least_clear", ctypes.c_long),
        ("level_windows", ctypes.c_long),
        ("beginning_level_windows", ctypes.c_long),
        ("bins_per_db", ctypes.c_long),
        ("room_dbfs", ctypes.c_double),
        ("voice_dbfs", ctypes.c_double),
        ("mean_squares", ctypes.c_double * vad.LEVEL_WINDOWS),
        ("known", ctypes.c_long),
        ("warming_up", ctypes.c_long),
        ("voiced", ctypes.c_long),
        ("since_voice", ctypes.c_long),
        ("since_tone", ctypes.c_long),
        ("unpitched", ctypes.c_long),
        ("doubted", ctypes.c_long),
        ("since_faint", ctypes.c_long),
        ("faint", ctypes.c_long),
        ("clear", ctypes.c_long),
        ("levels", ctypes.c_long),
        ("oldest", ctypes.c_long),
        ("bins", ctypes.c_uint8 * vad.BACKGROUND_WINDOWS),
        ("counts", ctypes.c_uint8 * vad.BACKGROUND_BINS),
        ("last", ctypes.c_int16 * WINDOW_SAMPLES),
    )


class CompiledScore:
    """Gives the same results as a new `WebRtcScore`, window by window."""

    def __init__(self, plain: WebRtcScore, compiled: NativeAudio, process: int) -> None:
        self._vad = plain.vad  # keeps the memory alive that the score points to
        self._score = _Score(
            process=process,
            vad=_pointer(plain.vad),
            floor_dbfs=plain.floor_dbfs,
            silence_dbfs=vad.SILENCE_DBFS,
            least_voicing=vad.LEAST_VOICING,
            room_fall=vad.NOISE_FLOOR_FALL_SHARE,
            room_rise=vad.NOISE_FLOOR_RISE_SHARE,
            margin_db=vad.NOISE_FLOOR_MARGIN_DB,
            going_on_margin_db=vad.GOING_ON_MARGIN_DB,
            least_voiced=vad.LEAST_VOICED_WINDOWS,
            going_on_voiced=vad.GOING_ON_VOICED_WINDOWS,
            voice_lasts=vad.VOICE_LASTS_WINDOWS,
            partials_rest=tones.PARTIALS_REST,
            maybe_partials_rest=tones.MAYBE_PARTIALS_REST,
            note_periodic=tones.NOTE_PERIODIC,
            maybe_note_periodic=tones.MAYBE_NOTE_PERIODIC,
            behind_tone_voiced=vad.VOICED_WINDOWS_BEHIND_TONE,
            tone_lasts=vad.TONE_LASTS_WINDOWS,
            voice_span_db=vad.VOICE_SPAN_DB,
            quiet_room_db=vad.QUIET_ROOM_DB,
            voice_rise=vad.VOICE_RISE_SHARE,
            voice_fall=vad.VOICE_FALL_SHARE,
            doubt_max=vad.DOUBT_WINDOWS_MAX,
            doubt_ends=vad.DOUBT_ENDS_WINDOWS,
            spoke_lately=vad.SPOKE_LATELY_WINDOWS,
            room_dbfs=vad.SILENCE_DBFS,
            voice_dbfs=vad.SILENCE_DBFS,
            warming_up=vad.WARM_UP_WINDOWS,
            since_voice=vad.SPOKE_LATELY_WINDOWS,
            since_tone=vad.TONE_LASTS_WINDOWS,
            going_on_voicing=vad.GOING_ON_VOICING,
            going_on_lasts=vad.GOING_ON_WINDOWS,
            faint_voicing=vad.FAINT_VOICING,
            faint_over_db=vad.FAINT_OVER_BACKGROUND_DB,
            faint_lasts=vad.FAINT_LASTS_WINDOWS,
            background_share=vad.BACKGROUND_SHARE,
            beginning_over_db=vad.BEGINNING_OVER_BACKGROUND_DB,
            going_on_over_db=vad.GOING_ON_OVER_BACKGROUND_DB,
            level_windows=vad.LEVEL_WINDOWS,
            beginning_level_windows=vad.BEGINNING_LEVEL_WINDOWS,
            bins_per_db=vad.BACKGROUND_BINS_PER_DB,
            since_faint=vad.FAINT_LASTS_WINDOWS,
            clear_voicing=vad.CLEAR_VOICING,
            least_clear=vad.LEAST_CLEAR_WINDOWS,
        )
        self._at = ctypes.c_void_p(ctypes.addressof(self._score))
        self._judge = compiled.judge
        self._speech = CompiledNoiseFloor(0)

    def judge(self, pcm: bytes) -> bytes:
        windows = len(pcm) // WINDOW_BYTES
        if windows != self._speech.size:  # the next packet is likely to be as long
            self._speech = CompiledNoiseFloor(windows)
        self._judge(self._at, pcm, windows, self._speech.at)
        return self._speech.buffer.raw


def _pointer(detector: Any) -> int:
    """The address of a `webrtcvad.Vad`'s `VadInst`. Raises the error that says why there is
    none."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found: int = get(detector._vad, CAPSULE)
    return found


@functools.cache
def _process() -> int | None:
    """The address of `WebRtcVad_Process`; None, with one line in the log, if it is hidden."""
    try:
        library = ctypes.PyDLL(_webrtcvad.__file__)
        _pointer(WebRtcScore().vad)
        return ctypes.cast(library.WebRtcVad_Process, ctypes.c_void_p).value
    except (OSError, AttributeError, ValueError) as error:
        log.warning("windows of sound are judged one by one, at twice the cost: %s", error)
        return None


def speech_score(threshold: float = 0.5) -> SpeechScore:
    """The fastest available `WebRtcScore`. Raises ValueError for a threshold outside 0..1."""
    plain, compiled, process = WebRtcScore(threshold), native_audio(), _process()
    if compiled is None or process is None:
        return plain
    return CompiledScore(plain, compiled, process)
