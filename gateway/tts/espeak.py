"""The fallback voice: eSpeak NG, rule-based. It sounds robotic, and costs very little."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from headstart.gateway.tts.synthesiser import RATE_HZ, Samples, ToWire, VoiceUnavailable

# speak_lib.h
AUDIO_OUTPUT_SYNCHRONOUS = 2
CHARS_UTF8 = 1
PARAMETER_RATE = 1
ERROR_OK = 0
WORDS_PER_MIN = 165
WORDS_PER_MIN_RANGE = (80, 450)
LANGUAGE = b"en-us"
PIECE_SAMPLES = RATE_HZ  # a second: keeps messages short, and lets a stop take effect between two

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class Espeak:
    """eSpeak NG's library, of which a process has one. Raises `VoiceUnavailable`."""

    name = "espeak"

    def __init__(self) -> None:
        try:
            loader: Any = importlib.import_module("espeakng_loader")
            self._library = ctypes.CDLL(loader.get_library_path())
        except (ImportError, OSError) as error:
            raise VoiceUnavailable(
                f"the extra 'voice' is not installed ({error}); pip install 'headstart[voice]'"
            ) from error
        data = str(loader.get_data_path()).removesuffix("/espeak-ng-data")
        rate_hz = self._library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, data.encode(), 0)
        if rate_hz <= 0 or self._library.espeak_SetVoiceByName(LANGUAGE) != ERROR_OK:
            raise VoiceUnavailable(f"eSpeak NG does not find its data in {data}")
        self._rate_hz = int(rate_hz)
        self._made: list[Samples] = []
        self._callback = _Callback(self._take)  # the library holds no reference to it
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, speed: float) -> Iterator[Samples]:
        """See `Synthesiser.speak`. A clause takes about 5 ms, so it is made in one call."""
        low, high = WORDS_PER_MIN_RANGE
        rate = min(max(round(WORDS_PER_MIN * speed), low), high)
        self._library.espeak_SetParameter(PARAMETER_RATE, rate, 0)
        self._made = []
        said = text.encode() + b"\0"
        self._library.espeak_Synth(said, len(said), 0, 1, 0, CHARS_UTF8, None, None)
        self._library.espeak_Synchronize()
        resampler = ToWire(self._rate_hz)
        sound = [resampler.feed(piece) for piece in self._made] + [resampler.flush()]
        whole = np.concatenate(sound)
        for start in range(0, len(whole), PIECE_SAMPLES):
            yield whole[start : start + PIECE_SAMPLES]

    def _take(self, samples: Any, count: int, _events: int) -> int:
        if samples and count > 0:
            self._made.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0
