"""gateway.video.ladder: what a camera gives up under load, in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.api import Level
from headstart.gateway.telemetry import names
from headstart.gateway.video.ladder import Ladder, LadderRules, Paced, Refusal, Rung
from headstart.gateway.video.sampling import Every, FrameSampler, FrameVerdict, SampledFrame
from tests.gateway.video import videos

NS_PER_S = 1_000_000_000
CHUNK_NS = NS_PER_S // 2
RULES = LadderRules()
LATE, BUSY, SLOW, IDLE = 3.0, 1.1, 0.7, 0.1  # loads: shares of the time until the next chunk


class Time:
    """A ladder and the chunks that it is told of, one every half second."""

    def __init__(self, *, pooled_tokens: int = 0) -> None:
        self.ladder = Ladder()
        self.ladder.engine(pooled_tokens)
        self.now_ns = 0
        self.seen = [self.ladder.rung]

    def loads(self, share: float, chunks: int = 1) -> None:
        for _ in range(chunks):
            self.now_ns += CHUNK_NS
            self.ladder.load(share, self.now_ns)
            if self.ladder.rung is not self.seen[-1]:
                self.seen.append(self.ladder.rung)


def test_a_rung_at_a_time_down_and_up_again() -> None:
    """However late the chunks are: first fewer frames, then smaller ones, then none; back in the
    same order, and more slowly."""
    time = Time()
    time.loads(LATE, RULES.patience)
    assert time.ladder.rung is Rung.FPS_75
    time.loads(LATE, 9 * RULES.patience)
    assert time.ladder.refuses
    time.loads(IDLE, RULES.patience_up - 1)
    assert time.ladder.refuses
    time.loads(IDLE, 9 * RULES.patience_up)
    down = [Rung.FULL, Rung.FPS_75, Rung.FPS_50, Rung.SIZE_336, Rung.SIZE_224, Rung.REFUSED]
    assert time.seen == [*down, *down[-2::-1]]


def test_an_engine_that_can_pool_has_one_rung_more() -> None:
    """Between the smallest frames and none; frames may then become so many tokens and no more."""
    time = Time(pooled_tokens=64)
    time.loads(LATE, 9 * RULES.patience)
    assert time.seen == list(Rung)
    time.loads(IDLE, RULES.patience_up)
    assert (time.ladder.rung, time.ladder.max_tokens) == (Rung.POOLED, 64)
    time.loads(IDLE, RULES.patience_up)
    assert (time.ladder.rung, time.ladder.max_tokens) == (Rung.SIZE_224, 0)
    time.ladder.engine(0)  # another engine, which can't
    time.loads(LATE, 9 * RULES.patience)
    assert Rung.POOLED not in time.seen[time.seen.index(Rung.FULL, 1) :]


@pytest.mark.parametrize(
    ("share", "rung"),
    [
        (0.6, Rung.FULL),
        (0.7, Rung.FPS_75),
        (0.9, Rung.FPS_50),
        (1.1, Rung.SIZE_336),
        (1.4, Rung.SIZE_224),
        (1.9, Rung.SIZE_224),
        (2.1, Rung.REFUSED),
    ],
)
def test_how_far_down_is_a_matter_of_the_load(share: float, rung: Rung) -> None:
    """A load that lasts leads to the rung behind the last mark that it exceeds, and stays there."""
    time = Time()
    time.loads(share, 200)
    assert time.ladder.rung is rung


def test_one_hiccup_changes_nothing() -> None:
    """Fewer late chunks in a row than the patience, however often, and loads between the marks."""
    time = Time()
    for _ in range(50):
        time.loads(LATE, RULES.patience - 1)
        time.loads(0.5)
    assert time.seen == [Rung.FULL]


def test_a_load_at_a_mark_does_not_swing() -> None:
    """Just above a mark and just below it in turn, for five minutes: one step and no other."""
    time = Time()
    for _ in range(100):
        time.loads(0.61, 3)
        time.loads(0.59, 3)
    assert time.seen == [Rung.FULL, Rung.FPS_75]


def test_without_chunks_it_comes_back_by_itself() -> None:
    """Nobody speaks, so nothing is reported: one rung up each ten seconds, but not sooner."""
    time = Time()
    time.loads(LATE, 9 * RULES.patience)
    rungs = []
    for second in range(60):
        time.ladder.quiet(time.now_ns + second * NS_PER_S)
        rungs.append(time.ladder.rung)
    assert rungs[9] is Rung.REFUSED
    assert [rungs[s] for s in (10, 20, 30, 40, 50)] == [
        *(Rung.SIZE_224, Rung.SIZE_336, Rung.FPS_50),
        *(Rung.FPS_75, Rung.FULL),
    ]


@pytest.mark.parametrize(
    ("level", "rung", "pooling"),
    [
        (Level.CALM, Rung.FULL, Rung.FULL),
        (Level.DEGRADED, Rung.SIZE_336, Rung.SIZE_336),
        (Level.OFFLOADING, Rung.SIZE_224, Rung.POOLED),
        (Level.REFUSING, Rung.REFUSED, Rung.REFUSED),
    ],
)
def test_short_memory_holds_a_rung(level: Level, rung: Rung, pooling: Rung) -> None:
    """At once, however idle the engine is; when memory is there again, the load alone decides."""
    for pooled_tokens, expected in ((0, rung), (64, pooling)):
        time = Time(pooled_tokens=pooled_tokens)
        time.ladder.memory(level)
        time.loads(IDLE, 50)
        assert time.ladder.rung is expected
        time.ladder.memory(Level.CALM)
        assert time.ladder.rung is Rung.FULL


def test_large_batches_hold_a_rung_until_they_are_clearly_smaller() -> None:
    """336 pixels from 32 sessions a step on, 224 from 64; left below three quarters of that."""
    ladder, seen = Ladder(), []
    for sessions in (31, 32, 40, 25, 23, 64, 50, 47, 24, 23, 0):
        ladder.batch(sessions)
        seen.append(ladder.rung)
    full, middle, small = Rung.FULL, Rung.SIZE_336, Rung.SIZE_224
    assert seen == [full, middle, middle, middle, full, small, small, middle, middle, full, full]


def test_who_asks_for_most_decides() -> None:
    """Load, memory and batch each hold their own rung."""
    time = Time()
    time.loads(SLOW, RULES.patience)
    time.ladder.batch(70)
    time.ladder.memory(Level.DEGRADED)
    seen = [time.ladder.rung]
    time.ladder.batch(0)
    seen.append(time.ladder.rung)
    time.ladder.memory(Level.CALM)
    seen.append(time.ladder.rung)
    assert seen == [Rung.SIZE_224, Rung.SIZE_336, Rung.FPS_75]


def test_each_rung_gives_up_more_than_the_one_above() -> None:
    """Rate, size and tokens never rise on the way down, each rung is labelled in metrics."""
    time = Time(pooled_tokens=64)
    costs = []
    for _ in Rung:
        ladder = time.ladder
        tokens = 64 / 256 if ladder.max_tokens else 1.0
        costs.append(0.0 if ladder.refuses else ladder.fps_share * ladder.side_share**2 * tokens)
        time.loads(LATE, RULES.patience)
    assert all(above > below for above, below in pairwise(costs))
    assert costs[1:4] == [0.75, 0.5, 0.5 * (336 / 448) ** 2]
    assert tuple(rung.label for rung in Rung) == names.RUNGS


def kept(sampler: FrameSampler, frames: tuple[SampledFrame, ...]) -> int:
    count = 0
    for frame in frames:
        if sampler.judge(frame) is FrameVerdict.KEEP:
            sampler.keep(frame)
            count += 1
    return count


@pytest.mark.parametrize("name", videos.NAMES)
def test_load_thins_a_video_out(name: str) -> None:
    """On a real video: half as many frames under load as without, and none when refused."""
    frames = videos.frames(name)
    counts = []
    for share in (IDLE, BUSY, LATE):
        time = Time()
        time.loads(share, 60)
        counts.append(kept(Every([Refusal(time.ladder), Paced(time.ladder, 4.0)]), frames))
    assert counts[1] / counts[0] == pytest.approx(0.5, abs=0.1)
    assert counts[2] == 0


def test_a_turns_frames_fall_with_the_rate_but_not_to_nothing() -> None:
    """32 a turn become 16 and 6 become 4; a limit below four stays, and none stays none."""
    time = Time()
    limits = [Paced(time.ladder, 1.0, most) for most in (32, 6, 2, 0)]
    assert [paced.max_frames for paced in limits] == [32, 6, 2, 0]
    time.loads(0.9, 50)
    assert [paced.max_frames for paced in limits] == [16, 4, 2, 0]
    assert Paced(time.ladder, 1.0, min_frames=5).min_frames == 2


@given(
    reports=st.lists(
        st.one_of(
            st.tuples(st.just("load"), st.floats(0, 10)),
            st.tuples(st.just("memory"), st.sampled_from(Level)),
            st.tuples(st.just("batch"), st.floats(0, 200)),
            st.tuples(st.just("quiet"), st.floats(0, 30)),
        ),
        max_size=200,
    ),
    pooled_tokens=st.sampled_from([0, 64]),
)
def test_any_history_ends_well(reports: list[tuple[str, float]], pooled_tokens: int) -> None:
    """Load moves it by one rung at most at a time; and whatever happened, a minute of calm brings
    it back to the top."""
    ladder, now_ns = Ladder(), 0
    ladder.engine(pooled_tokens)
    order = [rung for rung in Rung if pooled_tokens or rung is not Rung.POOLED]
    for kind, value in reports:
        before = ladder.rung
        if kind == "memory":
            ladder.memory(Level(int(value)))
        elif kind == "batch":
            ladder.batch(value)
        else:
            now_ns += CHUNK_NS if kind == "load" else round(value * NS_PER_S)
            ladder.load(value, now_ns) if kind == "load" else ladder.quiet(now_ns)
            assert abs(order.index(ladder.rung) - order.index(before)) <= 1
    ladder.memory(Level.CALM)
    ladder.batch(0)
    for _ in range(120):
        now_ns += CHUNK_NS
        ladder.load(IDLE, now_ns)
    assert ladder.rung is Rung.FULL
