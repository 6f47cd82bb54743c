"""The sound of a recording, part by part: 24 kHz mono, in one line of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import av

from headstart.talk.long_file.damage import Position, passes
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.parts import Part
from headstart.talk.media.audio import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    Heard,
    Mixing,
    Wave,
    pieces,
    silence,
    to_pcm,
)
from headstart.talk.media.container import UNDECODABLE, opened
from headstart.talk.media.gaps import GAP_MAX_S, JITTER_S, Gaps
from headstart.talk.media.losses import Losses

MIXED_BY_S = 60.0
"""How much of the sound decides how its channels are mixed."""
FAULTS_MAX = 4
"""Of packets of sound; then another decoder goes on."""


class _Placing(Gaps):
    """Places sound by its timestamps from the first one on, and notes the holes that it fills. A
    hole may be of any length, as long as sound goes on before `ends_s`, the timestamp at which the
    file ends by its own account: timestamps that jump further have begun anew."""

    def __init__(self, at: Position, ends_s: float) -> None:
        super().__init__(0.0)
        self._ends_s = ends_s
        self.first_s: float | None = None
        self.placed_s = 0.0  # since the first
        self._at = at
        self._shift_by_s: float | None = None
        self._again = False
        self.twice_s = 0.0
        """What is to be left out of the next sound: it was there already."""

    def begin_again(self) -> None:
        """The next sound is read by another decoder, perhaps from a little earlier."""
        self._again = self.first_s is not None

    def before(self, at_s: float | None, lasts_s: float) -> float:
        if self.first_s is None:
            self.first_s = at_s or 0.0
        self._at.time_s = at_s if at_s is not None else self._at.time_s
        shift_s = -self.first_s if self._shift_by_s is None else self._shift_by_s
        gap_s = 0.0 if at_s is None else at_s + shift_s - self.placed_s
        if self._again and gap_s < 0:  # read once more, by a decoder of its own
            self.twice_s -= gap_s
            self.placed_s += gap_s
            gap_s = 0.0
        elif gap_s < -JITTER_S or (gap_s > GAP_MAX_S and (at_s or 0.0) >= self._ends_s):
            shift_s -= gap_s
            gap_s = 0.0
        elif gap_s < JITTER_S:
            gap_s = 0.0
        if gap_s:
            self.holes.append((self.placed_s, self.placed_s + gap_s))
        self._shift_by_s, self._again = shift_s, False
        self.placed_s += gap_s + lasts_s
        return gap_s


class AudioReader:
    """The sound from `start_s` of the recording on. `check` is called between two pieces of it, and
    may raise."""

    def __init__(
        self, info: FileInfo, start_s: float, losses: Losses, check: Callable[[], None]
    ) -> None:
        self._info, self._start_s, self._losses, self._check = info, start_s, losses, check
        self._pcm = bytearray()
        self._begins_s = start_s  # of `_pcm`
        self._mixing = _mixing(info, start_s)
        self._waves = self._decoded()
        self.ended = False

    def until(self, part: Part) -> bytes:
        """The part's sound, padded with silence only where the file has holes."""
        wanted = _size(part.end_s - self._begins_s)
        while len(self._pcm) < wanted and not self.ended:
            wave = next(self._waves, None)
            if wave is None:
                self.ended = True
            else:
                self._pcm += to_pcm(self._mixing.apply(wave))
        skipped = min(_size(part.start_s - self._begins_s), len(self._pcm))
        if skipped > 0:
            del self._pcm[:skipped]
            self._begins_s += skipped / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
        return bytes(self._pcm[: _size(part.end_s - part.start_s)])

    def _decoded(self) -> Iterator[Wave]:
        assert self._info.sound is not None
        stream = self._info.sound
        heard = Heard(scale=self._mixing.scale)
        at = Position(heard)
        placing = _Placing(at, self._info.start_s + self._info.duration_s)
        told, is_first, skip, made_s = 0, True, 0, 0.0
        for container in passes(self._info, stream, self._start_s, at):
            if at.is_again:
                placing.begin_again()
            faulty = heard.corrupt
            for wave in pieces(container, container.streams[stream], heard, placing):
                self._check()
                if is_first:
                    is_first = False
                    late_s = (placing.first_s or 0.0) - self._info.start_s - self._start_s
                    if late_s > 0:
                        begins_s = min(late_s, self._info.duration_s - self._start_s)
                        yield from silence(begins_s)
                    skip = max(0, round(-late_s * SAMPLE_RATE_HZ))
                skip += round(placing.twice_s * SAMPLE_RATE_HZ)
                made_s += wave.shape[1] / SAMPLE_RATE_HZ - placing.twice_s
                placing.twice_s = 0.0
                base_s = (placing.first_s or 0.0) - self._info.start_s
                for begin_s, end_s in placing.holes[told:]:
                    self._losses.add("sound", base_s + begin_s, base_s + end_s)
                told = len(placing.holes)
                if skip < wave.shape[1]:
                    yield wave[:, skip:]
                    skip = 0
                else:
                    skip -= wave.shape[1]
                if heard.corrupt - faulty >= FAULTS_MAX:
                    # A decoder that has read noise may be silent from then on: AAC's is.
                    heard.ended_early = True
                    placing.placed_s = made_s  # what this one still holds is left out
                    break


def _mixing(info: FileInfo, start_s: float) -> Mixing:
    """Of the first minute of what is heard."""
    assert info.sound is not None
    heard = Heard()
    try:
        with opened(info.path) as container:
            if start_s > 0:
                container.seek(int((info.start_s + start_s) * av.time_base))
            for wave in pieces(container, container.streams[info.sound], heard):
                heard.weigh(wave)
                if heard.duration_s >= MIXED_BY_S:
                    break
    except UNDECODABLE:
        return Mixing()
    return heard.mixing if heard.wanted_scale == 1.0 else Mixing(scale=heard.wanted_scale)


def _size(lasts_s: float) -> int:
    return BYTES_PER_SAMPLE * max(0, round(lasts_s * SAMPLE_RATE_HZ))
