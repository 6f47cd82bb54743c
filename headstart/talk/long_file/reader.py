"""A recording, decoded part by part, forwards and once: 30 s of sound and pictures in memory.

Sound and pictures are read by two decoders of their own, so that neither waits for the other in a
badly interleaved file. What does not decode is skipped, and told as `Lost` with its times; where a
file cannot even be read on, reading starts again a little later in it.

Memory: the sound of a part (1.4 MB), and at most `CANDIDATES_PER_S` small JPEGs for each second.

"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import av
import numpy as np
from av.container.input import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from headstart.gateway.video.sampling import difference
from headstart.talk.container import UNDECODABLE, Tally, decoded, ogg_links, opened, parts
from headstart.talk.gaps import GAP_MAX_S, JITTER_S, Gaps
from headstart.talk.long_file.choice import CANDIDATES_PER_S, SAME, Allowance, Candidate, Chooser
from headstart.talk.long_file.facts import Facts
from headstart.talk.long_file.picture import jpeg, small, thumbnail
from headstart.talk.long_file.plan import Part, Plan, clock
from headstart.talk.pictures import BACKWARDS_S
from headstart.talk.sound import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    Heard,
    Mixing,
    Wave,
    pieces,
    to_pcm,
)

THREADS_MAX = 4
SKIPS_FROM_FPS = 12.0
"""From this rate on, frames that no other frame refers to are not decoded: enough are left."""
LOST_MIN_S = 0.5
"""Shorter losses are not told: nobody would notice them."""
MIXED_BY_S = 60.0
"""How much of the sound decides how its channels are mixed."""
FAULTS_MAX = 4
"""Of packets of sound; then another decoder goes on."""
RETRIES = 12
STEP_S = 0.25
"""How much further reading starts again; each time without success twice as much."""
SEEK_BEFORE_S = 3.0
"""Seeking is inexact in some containers, mostly by less than this."""
_Timed = tuple[float, Wave]


@dataclass(frozen=True)
class Shown:
    """A picture of a part. `at_s`: of the recording."""

    at_s: float
    jpeg: bytes
    thumbnail: np.ndarray


@dataclass(frozen=True)
class Lost:
    """What of the recording could not be decoded: `what` is "pictures" or "sound"."""

    what: str
    start_s: float
    end_s: float

    def __str__(self) -> str:
        return f"{self.what} from {clock(self.start_s)} to {clock(self.end_s)} cannot be decoded"

    def to_wire(self) -> dict[str, object]:
        return {"what": self.what, "start_s": round(self.start_s, 2), "end_s": round(self.end_s, 2)}


@dataclass(frozen=True)
class Material:
    """One part: s16le mono 24 kHz from `part.start_s` on, and its pictures in order. `sampled`: how
    many pictures were looked at to choose them; `lost`: newly noticed."""

    part: Part
    pcm: bytes
    pictures: tuple[Shown, ...]
    sampled: int
    lost: tuple[Lost, ...] = ()


def read(
    facts: Facts,
    plan: Plan,
    chooser: Chooser,
    pictures: int,
    *,
    hear: bool = True,
    see: bool = True,
    first: int = 0,
) -> Iterator[Material]:
    """The parts from number `first` on, until the plan or the file ends. `pictures`: of a part, on
    average."""
    start_s = plan.part(first).start_s
    losses = _Losses()
    sound = _Sound(facts, start_s, plan.end_s, losses) if hear and facts.sound is not None else None
    video = _Video(facts, start_s, plan.end_s, losses) if see and facts.video is not None else None
    allowance = Allowance(pictures)
    for index in range(first, plan.count):
        part = plan.part(index)
        pcm = sound.until(part) if sound else b""
        candidates = video.until(part) if video else []
        if video and facts.covers and index > first:
            candidates = []
        ended = (sound is None or sound.ended) and (video is None or video.ended or facts.covers)
        if ended and not pcm and not candidates:
            missing_s = min(plan.end_s, facts.duration_s)
            for what, there in (("sound", sound), ("pictures", None if facts.covers else video)):
                if there:
                    losses.add(what, part.start_s, missing_s)
            lost = losses.take()
            if lost:
                yield Material(part, b"", (), 0, lost)
            return
        listed = [Candidate(shown.at_s, shown.thumbnail) for shown in candidates]
        chosen = chooser.choose(listed, allowance.of(part.lasts_s))
        if candidates:
            allowance.took(len(chosen))
        shown = tuple(candidates[i] for i in chosen)
        yield Material(part, pcm, shown, len(candidates), losses.take())


@dataclass
class _Losses:
    """Merged losses that have not been told yet, by what was lost."""

    _open: dict[str, list[Lost]] = field(default_factory=dict)

    def add(self, what: str, start_s: float, end_s: float) -> None:
        if end_s - start_s < LOST_MIN_S:
            return
        spans = self._open.setdefault(what, [])
        if spans and start_s <= spans[-1].end_s + LOST_MIN_S:
            start_s = spans.pop().start_s
        spans.append(Lost(what, start_s, end_s))

    def take(self) -> tuple[Lost, ...]:
        found = tuple(lost for spans in self._open.values() for lost in spans)
        self._open.clear()
        return found


def _passes(facts: Facts, stream: int, start_s: float, at: _Position) -> Iterator[InputContainer]:
    """The file, opened a little before `start_s` of the recording; again, further on, for as long
    as reading breaks off (`at.tally.ended_early`) before its end. A chained Ogg from its beginning,
    link by link."""
    path = facts.path
    if len(ogg_links(path)) > 1:
        yield from (c for c in parts(path) if stream < len(c.streams))
        return
    step_s, tries, reached_s = STEP_S, 0, facts.start_s + start_s
    while True:
        with opened(path) as container:
            if start_s > 0 or tries:
                before_s = 0.0 if tries else SEEK_BEFORE_S
                try:
                    container.seek(int(max(facts.start_s, reached_s - before_s) * av.time_base))
                except UNDECODABLE:
                    if tries:
                        return
            yield container
        if not at.tally.ended_early or tries >= RETRIES:
            return
        at.tally.ended_early = False
        if at.time_s is not None and at.time_s > reached_s:
            step_s, tries, reached_s = STEP_S, 0, at.time_s
        tries += 1
        reached_s += step_s
        step_s *= 2


@dataclass
class _Position:
    """How far a stream was read, by its timestamps, and its faults."""

    tally: Tally
    time_s: float | None = None


# --- sound ----------------------------------------------------------------------------------------


class _Placing(Gaps):
    """Places sound by its timestamps from the first one on, and notes the holes that it fills."""

    def __init__(self, at: _Position) -> None:
        super().__init__(0.0)
        self.first_s: float | None = None
        self.placed_s = 0.0  # since the first
        self.holes: list[tuple[float, float]] = []
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
        elif not -JITTER_S <= gap_s <= GAP_MAX_S:
            shift_s -= gap_s
            gap_s = 0.0
        elif gap_s < JITTER_S:
            gap_s = 0.0
        if gap_s:
            self.holes.append((self.placed_s, self.placed_s + gap_s))
        self._shift_by_s, self._again = shift_s, False
        self.placed_s += gap_s + lasts_s
        return gap_s


class _Sound:
    """The sound from `start_s` of the recording on."""

    def __init__(self, facts: Facts, start_s: float, end_s: float, losses: _Losses) -> None:
        self._facts, self._start_s, self._end_s, self._losses = facts, start_s, end_s, losses
        self._pcm = bytearray()
        self._begins_s = start_s  # of `_pcm`
        self._mixing = _mixing(facts, start_s)
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
        assert self._facts.sound is not None
        stream = self._facts.sound
        heard = Heard(scale=self._mixing.scale)
        at = _Position(heard)
        placing = _Placing(at)
        told, is_first, skip, made_s = 0, True, 0, 0.0
        for container in _passes(self._facts, stream, self._start_s, at):
            placing.begin_again()
            faulty = heard.corrupt
            for wave in pieces(container, container.streams[stream], heard, placing):
                if is_first:
                    is_first = False
                    late_s = (placing.first_s or 0.0) - self._facts.start_s - self._start_s
                    if late_s > 0:
                        late_s = min(late_s, GAP_MAX_S)
                        yield np.zeros((1, round(late_s * SAMPLE_RATE_HZ)), np.float32)
                    skip = max(0, round(-late_s * SAMPLE_RATE_HZ))
                skip += round(placing.twice_s * SAMPLE_RATE_HZ)
                made_s += wave.shape[1] / SAMPLE_RATE_HZ - placing.twice_s
                placing.twice_s = 0.0
                base_s = (placing.first_s or 0.0) - self._facts.start_s
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


def _mixing(facts: Facts, start_s: float) -> Mixing:
    """Of the first minute of what is heard."""
    assert facts.sound is not None
    heard = Heard()
    try:
        with opened(facts.path) as container:
            if start_s > 0:
                container.seek(int((facts.start_s + start_s) * av.time_base))
            for wave in pieces(container, container.streams[facts.sound], heard):
                heard.weigh(wave)
                if heard.duration_s >= MIXED_BY_S:
                    break
    except UNDECODABLE:
        return Mixing()
    return heard.mixing if heard.wanted_scale == 1.0 else Mixing(scale=heard.wanted_scale)


def _size(lasts_s: float) -> int:
    return BYTES_PER_SAMPLE * max(0, round(lasts_s * SAMPLE_RATE_HZ))


# --- pictures -------------------------------------------------------------------------------------


class _Video:
    """Candidates from `start_s` of the recording on. What is shown at a part's beginning counts as
    its first, however long ago it came: a slide may stand for minutes."""

    def __init__(self, facts: Facts, start_s: float, end_s: float, losses: _Losses) -> None:
        self._facts, self._start_s, self._end_s, self._losses = facts, start_s, end_s, losses
        self._held: deque[Shown] = deque()
        self._before: Shown | None = None  # the newest before `_held`
        self._pending: Shown | None = None
        self._reached_s = start_s  # the newest frame's time
        self._frames = self._decoded()
        self.ended = False

    def until(self, part: Part) -> list[Shown]:
        while self._held and self._held[0].at_s < part.start_s:
            self._before = self._held.popleft()
        while not self.ended:
            shown = self._pending or next(self._frames, None)
            self._pending = None
            if shown is None:
                self.ended = True
            elif shown.at_s >= part.end_s:
                self._pending = shown
                break
            elif shown.at_s < part.start_s:
                self._before = shown
            else:
                self._held.append(shown)
        found = list(self._held)
        late = not found or found[0].at_s > part.start_s + 1 / CANDIDATES_PER_S
        is_over = self.ended and self._reached_s < part.start_s
        if self._before is not None and late and not is_over:
            found.insert(0, Shown(part.start_s, self._before.jpeg, self._before.thumbnail))
        return found

    def _decoded(self) -> Iterator[Shown]:
        """At most `CANDIDATES_PER_S`, and only those that differ from the one before."""
        facts = self._facts
        assert facts.video is not None
        due_s, last, aspect = -1e9, None, None
        for at_s, frame, stream_aspect in self._timed():
            # The one shown at the start may have come before it.
            if at_s > self._end_s:
                return
            if at_s < due_s:
                continue
            aspect = stream_aspect
            try:
                pixels = small(frame, aspect)
                tiny = thumbnail(pixels)
                if last is not None and difference(last, tiny) < SAME / 2:
                    due_s = at_s + 1 / CANDIDATES_PER_S - 0.01
                    continue
                found = Shown(at_s, jpeg(pixels), tiny)
            except UNDECODABLE:
                continue
            due_s, last = at_s + 1 / CANDIDATES_PER_S - 0.01, tiny
            yield found

    def _timed(self) -> Iterator[tuple[float, VideoFrame, Fraction | None]]:
        """Frames with their times in the recording, losses noted."""
        facts = self._facts
        assert facts.video is not None
        tally = Tally()
        at = _Position(tally)
        shift_s, corrupt, is_bad = -facts.start_s, 0, False
        last_s: float | None = None
        for container in _passes(facts, facts.video, self._start_s, at):
            stream = container.streams[facts.video]
            assert isinstance(stream, VideoStream)
            context = stream.codec_context
            context.thread_type = "AUTO"
            context.thread_count = min(THREADS_MAX, os.cpu_count() or 1)
            if facts.fps >= SKIPS_FROM_FPS:
                context.skip_frame = "NONREF"
            for frame in decoded(container, stream, tally):
                if not isinstance(frame, VideoFrame):
                    continue
                if frame.is_corrupt or tally.corrupt > corrupt:
                    corrupt, is_bad = tally.corrupt, True
                    if frame.is_corrupt:
                        continue
                stamp_s = _stamp_s(frame)
                if stamp_s is None:
                    at_s = 0.0 if last_s is None else last_s + 1 / max(facts.fps, 1.0)
                else:
                    at.time_s = stamp_s
                    at_s = stamp_s + shift_s
                if last_s is not None and at_s < last_s - BACKWARDS_S:
                    shift_s += last_s + 0.04 - at_s  # another link, or timestamps that restarted
                    at_s = last_s + 0.04
                if is_bad:
                    self._losses.add("pictures", last_s or self._start_s, at_s)
                    is_bad = False
                last_s = self._reached_s = at_s
                yield at_s, frame, context.sample_aspect_ratio
        if (is_bad or tally.corrupt > corrupt) and last_s is not None:
            self._losses.add("pictures", last_s, min(self._end_s, facts.duration_s))


def _stamp_s(frame: VideoFrame) -> float | None:
    """None for a frame without a time, which PyAV's types do not know of."""
    return frame.time
