"""The load-shedding ladder: what a session's camera gives up, rung by rung, so that speech is never
late for its pictures.

    rung       frames a second   side of a frame   tokens of a frame    frames at all
    full       1                 1                 all                  yes
    fps_75     3/4               1                 all                  yes
    fps_50     1/2               1                 all                  yes
    size_336   1/2               3/4 (336 of 448)  all                  yes
    size_224   1/2               1/2 (224 of 448)  all                  yes
    pooled     1/2               1/2               as few as can be     yes
    refused                                                             no

`pooled` is skipped with an engine that cannot pool (`api.ModelInfo.pooled_frame`).

Three things push a session down, and the one that asks for most decides:

    load      a chunk's latency as a share of the time until the next one: a rung further down when
              it is above that rung's mark several times in a row, one up when it is far below the
              mark of the rung it is on, more times in a row. Without chunks, because nobody speaks,
              one up after each `calm_s`.
    memory    how full the K/V cache is: from 0.8 on size_336, from 0.9 on the last rung before
              refusal, refused while the engine refuses sessions. The engine reports levels, and
              leaves them with hysteresis (`engine.scheduling.admission`).
    batch     sessions that a step of the engine works for: size_336 from 32 on, size_224 from 64.

Audio is on no rung: nothing here touches it. No I/O and no clock: times are arguments, in ns.

"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headstart.engine import api
from headstart.gateway.video.sampling import FrameVerdict, SampledFrame, Uniform

NS_PER_S = 1_000_000_000


class Rung(IntEnum):
    """How far down the ladder. The names in lower case are labels of the metrics."""

    FULL = 0
    FPS_75 = 1
    FPS_50 = 2
    SIZE_336 = 3
    SIZE_224 = 4
    POOLED = 5
    REFUSED = 6

    @property
    def label(self) -> str:
        return self.name.lower()


FPS_SHARES = {Rung.FULL: 1.0, Rung.FPS_75: 0.75}
"""Below, a half."""
SIDE_SHARES = {Rung.SIZE_336: 336 / 448, Rung.SIZE_224: 0.5, Rung.POOLED: 0.5, Rung.REFUSED: 0.5}
"""Above, 1."""
MIN_FRAMES = 4
"""The frames that a turn may have fall with the rate, but not below this many."""


@dataclass(frozen=True, slots=True)
class LadderRules:
    """`load_marks`: the load above which `FPS_75`, `FPS_50` and so on are entered, after `patience`
    reports in a row; a rung is left below `leave_share` of its mark, or below `leave_least` if that
    is more, after `patience_up`. `batch_marks`: sessions a step, and the rung from there on; left
    below `batch_leave_share` of the mark."""

    load_marks: tuple[float, ...] = (0.6, 0.8, 1.0, 1.25, 1.5, 2.0)
    leave_share: float = 0.5
    leave_least: float = 0.4
    patience: int = 3
    patience_up: int = 10
    calm_s: float = 10.0
    batch_marks: tuple[tuple[float, Rung], ...] = ((32, Rung.SIZE_336), (64, Rung.SIZE_224))
    batch_leave_share: float = 0.75


class Ladder:
    """The ladder of one session."""

    def __init__(self, rules: LadderRules | None = None) -> None:
        self._rules = rules or LadderRules()
        assert len(self._rules.load_marks) == len(Rung) - 1
        self._pooled_tokens = 0
        self._by_load = Rung.FULL
        self._by_memory = api.Level.CALM
        self._by_batch = Rung.FULL
        self._run = 0  # reports in a row: above the next mark counted up, calm ones down
        self._reported_ns: int | None = None

    # --- where it stands -------------------------------------------------------------------------

    @property
    def rung(self) -> Rung:
        return max(self._by_load, self._memory_rung, self._by_batch)

    @property
    def fps_share(self) -> float:
        return FPS_SHARES.get(self.rung, 0.5)

    @property
    def side_share(self) -> float:
        return SIDE_SHARES.get(self.rung, 1.0)

    @property
    def max_tokens(self) -> int:
        """Tokens that a frame may become; 0: no limit."""
        return self._pooled_tokens if self.rung >= Rung.POOLED else 0

    @property
    def refuses(self) -> bool:
        return self.rung is Rung.REFUSED

    @property
    def _memory_rung(self) -> Rung:
        match self._by_memory:
            case api.Level.CALM:
                return Rung.FULL
            case api.Level.DEGRADED:
                return Rung.SIZE_336
            case api.Level.OFFLOADING:
                return Rung.POOLED if self._pooled_tokens else Rung.SIZE_224
            case api.Level.REFUSING:
                return Rung.REFUSED

    # --- what moves it ---------------------------------------------------------------------------

    def engine(self, pooled_tokens: int) -> None:
        """An engine takes the session: the tokens that it can pool a frame to, 0 if it cannot. Its
        load is not known yet."""
        self._pooled_tokens = pooled_tokens
        self._by_load, self._run = Rung.FULL, 0
        self._by_memory, self._by_batch = api.Level.CALM, Rung.FULL

    def load(self, share: float, now_ns: int) -> None:
        """A chunk's latency as a share of the time until the next one is there."""
        rules = self._rules
        self._reported_ns = now_ns
        below = self._next(1)
        if below is not None and share > rules.load_marks[below - 1]:
            self._run = max(self._run, 0) + 1
        elif self._by_load and share < self._leave_mark:
            self._run = min(self._run, 0) - 1
        else:
            self._run = 0
        if self._run >= rules.patience:
            self._step(1)
        elif -self._run >= rules.patience_up:
            self._step(-1)

    def quiet(self, now_ns: int) -> None:
        """Called with each frame: what was slow while somebody spoke may be fast by now."""
        if self._reported_ns is None or not self._by_load:
            return
        if now_ns - self._reported_ns >= self._rules.calm_s * NS_PER_S:
            self._reported_ns = now_ns
            self._step(-1)

    def memory(self, level: api.Level) -> None:
        """How full the engine's K/V cache is."""
        self._by_memory = level

    def batch(self, sessions: float) -> None:
        """Sessions that a step of the engine works for, on average of the last steps."""
        reached = Rung.FULL
        for mark, rung in self._rules.batch_marks:
            on_it = self._by_batch >= rung
            if sessions >= mark * (self._rules.batch_leave_share if on_it else 1.0):
                reached = rung
        self._by_batch = reached

    @property
    def _leave_mark(self) -> float:
        rules = self._rules
        return max(rules.leave_share * rules.load_marks[self._by_load - 1], rules.leave_least)

    def _next(self, by: int) -> Rung | None:
        """The next rung in that direction; None at an end."""
        number = self._by_load + by
        if number == Rung.POOLED and not self._pooled_tokens:
            number += by
        return Rung(number) if Rung.FULL <= number <= Rung.REFUSED else None

    def _step(self, by: int) -> None:
        self._run = 0
        following = self._next(by)
        if following is not None:
            self._by_load = following


class Paced:
    """As `Uniform`, at the ladder's share of `fps`, `min_frames` and `max_frames`."""

    def __init__(
        self, ladder: Ladder, fps: float, max_frames: int = 0, min_frames: int = 0
    ) -> None:
        self._ladder, self._fps = ladder, fps
        self._min_frames, self._max_frames = min_frames, max_frames
        self._pace = Uniform(fps, min_frames, max_frames)

    @property
    def fps(self) -> float:
        return self._fps * self._ladder.fps_share

    @property
    def min_frames(self) -> int:
        return int(self._min_frames * self._ladder.fps_share)

    @property
    def max_frames(self) -> int:
        """0: no limit."""
        least = min(MIN_FRAMES, self._max_frames)
        return max(least, round(self._max_frames * self._ladder.fps_share))

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        return self._paced().judge(frame)

    def look(self, frame: SampledFrame) -> None:
        pass  # it goes by time alone

    def keep(self, frame: SampledFrame) -> None:
        self._paced().keep(frame)

    def begin_turn(self) -> None:
        self._pace.begin_turn()

    def _paced(self) -> Uniform:
        self._pace.fps = self.fps
        self._pace.min_frames, self._pace.max_frames = self.min_frames, self.max_frames
        return self._pace


class Refusal:
    """Refuses all frames on the ladder's last rung."""

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder

    def judge(self, frame: SampledFrame) -> FrameVerdict:
        return FrameVerdict.REFUSED if self._ladder.refuses else FrameVerdict.KEEP

    def look(self, frame: SampledFrame) -> None:
        pass

    def keep(self, frame: SampledFrame) -> None:
        pass

    def begin_turn(self) -> None:
        pass
