"""How often sessions are heard when not everybody can be heard every chunk. No I/O, no clock.

A pass of the recogniser takes nearly the same time for one chunk as for two. So under load sessions
are heard every second chunk, or every third or fourth, and everybody is heard in time again. The
number of chunks is the `level`:

- **1, every chunk**, until passes are late: until, of the passes of the last `window_s`, a share of
  `late_share` ended later than one chunk after the sound for them was there. Whoever speaks alone
  is never made to wait.
- **Higher** then: the lowest level at which hearing and all other work would take `room` of the
  time, by what they took in the window; at most `most_chunks` and `most_s` of sound. If passes are
  still late at a level that seemed enough, one more after `patience_s`.
- **Lower** after `calm_s` in which passes were in time: the lowest level at which all work would
  take `sure_room` of the time, or else one less if it would take `tried_room`. That may fail; then
  the next such try waits twice as long, up to `longest_calm_s`. After a silence of `window_s`:
  every chunk.

The first pass of a turn waits for nothing. Which chunk the second one waits for, from half of the
level on, is chosen so that passes spread over the interval (`_plan`); from then on the session is
heard every `level` chunks. Sound that stops coming is heard when the next chunk is overdue, so no
sound waits for longer than the interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headstart.engine.config import EngineConfig

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class IntervalRules:
    """`most_s`: the longest interval; 0: every chunk, always. For the others see above.

    `longer_share`: what a chunk more adds to a pass, in shares of a pass over one; `least_passes`:
    with fewer in the window there is nothing to judge; `failed_s`: a level that was tried is given
    up within this time if it fails.
    """

    most_s: float = 2.0
    most_chunks: int = 4
    window_s: float = 3.0
    late_share: float = 0.3
    least_passes: int = 6
    calm_s: float = 5.0
    longest_calm_s: float = 60.0
    failed_s: float = 10.0
    patience_s: float = 6.0
    room: float = 0.95
    sure_room: float = 0.8
    tried_room: float = 1.05
    longer_share: float = 0.35


@dataclass(frozen=True, slots=True)
class Sound:
    """A chunk that was received at `at_ns` and is `length_ns` long."""

    at_ns: int
    length_ns: int


@dataclass(frozen=True, slots=True)
class _Heard:
    """A session's last pass: when the sound for the next one will be there, how many chunks that
    is, and the level it was chosen at."""

    planned_ns: int
    chunks: int
    level: int


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass that ended at `at_ns`. `late`: None where nobody could say when it was due."""

    at_ns: int
    took_ns: int
    session: str
    chunks: int
    length_ns: int  # of its longest chunk
    late: bool | None


class HearingInterval:
    """The policy over all sessions of one recogniser, which are known by name."""

    def __init__(self, rules: IntervalRules | None = None) -> None:
        self.level = 1
        self._rules = rules or IntervalRules()
        self._window_ns = int(self._rules.window_s * NS_PER_S)
        self._heard: dict[str, _Heard] = {}
        self._passes: deque[_Pass] = deque()
        self._other: deque[tuple[int, int]] = deque()  # when other work ended, and what it took
        self._length_ns = 0  # of a chunk
        self._changed_ns = 0  # when the level did
        self._was_raised = True  # or lowered
        self._calm_s = self._rules.calm_s

    @property
    def interval_ms(self) -> float:
        """How much sound of a session is heard at once, as a rule; 0: nothing was heard yet."""
        return self._most_chunks(self._length_ns) * self._length_ns / NS_PER_MS

    # --- who waits -------------------------------------------------------------------------------

    def waits(self, session: str, sound: Sequence[Sound], now_ns: int) -> bool:
        """Whether a session with this sound, and nothing else to do, is to be heard later."""
        heard = self._heard.get(session)
        if self.level == 1 or heard is None or not sound:
            return False
        length_ns = sound[0].length_ns
        wanted_ns = min(heard.chunks, self._most_chunks(length_ns)) * length_ns
        if sum(chunk.length_ns for chunk in sound) > wanted_ns - length_ns // 2:
            return False
        return now_ns - sound[0].at_ns < wanted_ns

    def allowance_ns(self, session: str, sound: Sequence[Sound]) -> int:
        """How long after its own deadline a session's first chunk is heard when all is in time."""
        if self.level == 1 or session not in self._heard or not sound:
            return 0
        return (self._most_chunks(sound[0].length_ns) - 1) * sound[0].length_ns

    def _most_chunks(self, length_ns: int) -> int:
        """The level for chunks of that length."""
        most_ns = int(self._rules.most_s * NS_PER_S)
        return max(min(self.level, most_ns // max(length_ns, 1)), 1)

    # --- what was done ---------------------------------------------------------------------------

    def heard(self, session: str, sound: Sequence[Sound], took_ns: int, ended_ns: int) -> None:
        """A pass over a session's sound has ended."""
        if not sound:
            return
        if self._passes and ended_ns - self._passes[-1].at_ns > self._window_ns:
            self._reset(ended_ns)
        before = self._heard.get(session)
        late = self._is_late(before, sound, ended_ns)
        length_ns = max(chunk.length_ns for chunk in sound)
        self._passes.append(_Pass(ended_ns, took_ns, session, len(sound), length_ns, late))
        # What is left at a pause is a shorter chunk.
        self._length_ns = max(each.length_ns for each in self._passes)
        self._judge(ended_ns)
        self._plan(session, before, sound)

    def worked(self, took_ns: int, now_ns: int) -> None:
        """Work other than passes over chunks kept the recogniser waiting for so long."""
        self._other.append((now_ns, max(took_ns, 0)))
        self._forget_old(now_ns)

    def forget(self, session: str) -> None:
        """The session's turn has ended, or the session has."""
        self._heard.pop(session, None)

    def _is_late(self, before: _Heard | None, sound: Sequence[Sound], ended_ns: int) -> bool | None:
        """Whether it ended more than a chunk after the sound that it waited for was there."""
        chunks = 1
        if before is not None:
            chunks = min(before.chunks, self._most_chunks(sound[0].length_ns))
        if len(sound) < chunks or self._came_fast(sound):
            return None
        return ended_ns > sound[chunks - 1].at_ns + sound[0].length_ns

    def _came_fast(self, sound: Sequence[Sound]) -> bool:
        """Whether it comes from a file, faster than real time: it is late by design."""
        return any(b.at_ns - a.at_ns < b.length_ns // 2 for a, b in pairwise(sound))

    # --- the level -------------------------------------------------------------------------------

    def _reset(self, now_ns: int) -> None:
        """Nobody was heard for a while: all that was known is old."""
        self._set(1, now_ns)
        self._calm_s = self._rules.calm_s
        self._passes.clear()
        self._heard.clear()

    def _set(self, level: int, now_ns: int) -> None:
        self._was_raised = level > self.level
        self.level, self._changed_ns = level, now_ns

    def _forget_old(self, now_ns: int) -> None:
        since_ns = now_ns - self._window_ns
        while self._passes and self._passes[0].at_ns < since_ns:
            self._passes.popleft()
        while self._other and self._other[0][0] < since_ns:
            self._other.popleft()

    def _judge(self, now_ns: int) -> None:
        """Raise or lower the level if it is time to."""
        rules = self._rules
        self._forget_old(now_ns)
        # What ended soon after a change had waited at the level before.
        from_ns = self._changed_ns + self.level * self._length_ns
        told = [p.late for p in self._passes if p.late is not None and p.at_ns >= from_ns]
        if len(told) < rules.least_passes:
            return
        late = sum(told) / len(told)
        since_s = (now_ns - self._changed_ns) / NS_PER_S
        if late >= rules.late_share:
            if self._share(self.level) > rules.room or since_s >= rules.patience_s:
                self._raise(now_ns, since_s)
        elif self.level > 1 and since_s >= rules.calm_s and late <= rules.late_share / 3:
            lower = range(1, self.level)
            sure = next((n for n in lower if self._share(n) <= rules.sure_room), None)
            if sure is not None:
                self._set(sure, now_ns)
            elif since_s >= self._calm_s and self._share(self.level - 1) <= rules.tried_room:
                self._set(self.level - 1, now_ns)

    def _raise(self, now_ns: int, since_s: float) -> None:
        """To the first level at which there is time for everybody, as far as that is known."""
        rules = self._rules
        most = min(int(rules.most_s * NS_PER_S) // self._length_ns, rules.most_chunks)
        if self.level >= most or len({each.session for each in self._passes}) < 2:
            return
        failed = not self._was_raised and since_s < rules.failed_s
        longer_s = min(2 * self._calm_s, rules.longest_calm_s)
        self._calm_s = longer_s if failed else rules.calm_s
        higher = range(self.level + 1, most + 1)
        self._set(next((n for n in higher if self._share(n) <= rules.room), most), now_ns)

    def _share(self, level: int) -> float:
        """The share of the time that all work of the window would take at a level."""
        longer = self._rules.longer_share
        chunks = sum(each.chunks for each in self._passes)
        took_ns = sum(each.took_ns for each in self._passes)
        one_ns = took_ns / sum(1 + longer * (each.chunks - 1) for each in self._passes)
        other_ns = sum(took_ns for _, took_ns in self._other)
        passes_ns = chunks / level * one_ns * (1 + longer * (level - 1))
        return (passes_ns + other_ns) / self._window_ns

    # --- spreading -------------------------------------------------------------------------------

    def _plan(self, session: str, before: _Heard | None, sound: Sequence[Sound]) -> None:
        """Choose how many chunks the session's next pass waits for."""
        length_ns, last_ns = sound[0].length_ns, sound[-1].at_ns
        level = self._most_chunks(length_ns)
        is_new = before is None or before.level != level
        choices = range((level + 1) // 2, level + 1) if is_new else (level,)
        others = [
            heard.planned_ns
            for name, heard in self._heard.items()
            if name != session and heard.level == level
        ]

        def crowd(chunks: int) -> float:
            """How many passes of others fall within a chunk's length of it, near ones the most."""
            at_ns, interval_ns = last_ns + chunks * length_ns, level * length_ns
            apart_ns = ((other_ns - at_ns) % interval_ns for other_ns in others)
            near_ns = (min(ns, interval_ns - ns) for ns in apart_ns)
            return sum(max(1 - ns / length_ns, 0.0) for ns in near_ns)

        chunks = min(choices, key=lambda chunks: (crowd(chunks), -chunks))
        self._heard[session] = _Heard(last_ns + chunks * length_ns, chunks, level)


def interval_of(config: EngineConfig) -> HearingInterval:
    """The policy with the settings of `config`."""
    return HearingInterval(IntervalRules(most_s=config.hearing_interval_s))
