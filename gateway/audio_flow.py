"""How far the engine is behind the sound it was told, and the wait until that is less."""

from __future__ import annotations

import asyncio
import contextlib

from engine import api

AUDIO_BEHIND_SAMPLES = 30 * api.SAMPLE_RATE_HZ
AUDIO_BEHIND_WAIT_S = 10.0
"""Longest pause of the reader: pongs are read with the messages, and pings time out."""


class AudioFlow:
    """How far the engine is behind the audio it was told, in samples: of the open utterance and of
    items' sound."""

    def __init__(self) -> None:
        self._clip_samples = 0
        self._told_sample = 0
        self._done_sample = 0
        self.must_wait = False
        """The engine is too far behind for more."""
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    @property
    def behind_samples(self) -> int:
        return max(0, self._told_sample - self._done_sample) + self._clip_samples

    def told(self, command: api.Command) -> None:
        match command:
            case api.Audio():
                self._told_sample = command.start_sample + command.samples
            case api.BeginSpeech():
                self._done_sample = max(self._done_sample, command.start_sample)
            case api.DropSpeech():
                self._done_sample = self._told_sample
            case api.Clip():
                self._clip_samples += command.samples
            case _:
                return
        self._update()

    def heard(self, event: api.Event) -> None:
        match event:
            case api.Chunk():
                self._done_sample = max(self._done_sample, event.start_sample + event.samples)
                self._update()
            case api.Heard():
                self._done_sample = self._told_sample
                self._update()
            case api.ClipHeard():
                self._clip_samples = max(0, self._clip_samples - event.samples)
                self._update()
            case api.Failed() if event.about == "clip":
                self._clip_samples = 0  # whose piece it was, and how long, is not known
                self._update()

    def forget(self) -> None:
        """Nothing is outstanding any more."""
        self._done_sample, self._clip_samples = self._told_sample, 0
        self._update()

    def _update(self) -> None:
        self.must_wait = self.behind_samples > AUDIO_BEHIND_SAMPLES
        if self.must_wait:
            self._caught_up.clear()
        else:
            self._caught_up.set()

    async def wait(self) -> None:
        if self.must_wait:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._caught_up.wait(), AUDIO_BEHIND_WAIT_S)
