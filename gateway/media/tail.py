"""The latest stretch of 16 kHz audio, addressed by sample number."""

from __future__ import annotations

from gateway.media.timebase import BYTES_PER_SAMPLE, hear_bytes


class AudioTail:
    """[start_sample, end_sample) of a stream as s16 bytes: grows at the end by `append`, shrinks at
    the start by `drop_before`. Its owner bounds it."""

    def __init__(self) -> None:
        self.start_sample = 0
        self._pcm = bytearray()

    @property
    def end_sample(self) -> int:
        return self.start_sample + len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def size_bytes(self) -> int:
        return len(self._pcm)

    def append(self, pcm: bytes) -> None:
        """s16 that follows on what is here."""
        self._pcm += pcm

    def between(self, start_sample: int, end_sample: int) -> bytes:
        """The audio [start_sample, end_sample), all of which must still be here."""
        assert self.start_sample <= start_sample <= end_sample <= self.end_sample
        base = self.start_sample
        return bytes(self._pcm[hear_bytes(start_sample - base) : hear_bytes(end_sample - base)])

    def drop_before(self, sample: int) -> None:
        """Forget what lies before `sample`; nothing happens if it is gone already."""
        count = min(sample, self.end_sample) - self.start_sample
        if count > 0:
            del self._pcm[: hear_bytes(count)]
            self.start_sample += count
