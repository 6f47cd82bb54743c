"""What the engine counts of its steps and of what it began too early."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.engine.commands import end, hush, respond
from tests.engine.fakes import Bench

EITHER_BACKEND = True


@pytest.mark.our_decoder("counts its steps")
def test_steps_are_counted_with_what_was_in_them() -> None:
    """Durations by the engine's clock, tokens by what they were for; idle turns of the loop are no
    steps."""
    bench = Bench()
    bench.open()
    bench.engine.steps.take()
    bench.say()
    heard = bench.engine.steps.take()
    assert heard.count > 0
    assert heard.prefill_tokens > 0
    assert heard.decode_tokens == 0
    assert heard.max_ms is not None
    assert 0 < heard.max_ms <= heard.busy_ms
    assert heard.sessions_mean == 1
    bench.tell(end(), respond())
    bench.run()
    assert bench.engine.steps.take().decode_tokens > 0
    bench.engine.step()
    assert bench.engine.steps.take().count == 0


@pytest.mark.our_decoder("counts its steps")
def test_who_waits_for_a_later_step_is_counted() -> None:
    """One piece of heavy work a step: of three sessions two wait."""
    bench = Bench()
    names = ("a", "b", "c")
    for name in names:
        bench.open(name)
        bench.say(name)
    bench.engine.steps.take()
    bench.tell(*(hush(session=name) for name in names))
    bench.run()
    assert bench.engine.steps.take().queue_max == 2


def test_speculation_is_counted_by_what_came_of_it() -> None:
    """Kept when the answer was begun with it; wasted when speech went on or its session closed."""
    bench = Bench()
    bench.open()
    bench.say()
    bench.tell(hush())
    bench.run()
    bench.tell(api.Resume("s", api.TurnRef(1, 1)))
    bench.run()
    wasted = bench.engine.totals
    assert wasted.speculated_wasted > 0
    assert wasted.speculated_kept == 0
    bench.tell(hush(revision=1))
    bench.run()
    bench.tell(end(revision=1), respond())
    bench.run()
    kept = bench.engine.totals
    assert kept.speculated_kept == bench.finished().usage.speculated > 0
    assert kept.speculated_wasted == wasted.speculated_wasted
    bench.tell(api.Close("s"))
    bench.run()
    assert bench.engine.totals == kept, "what closed sessions did still counts"
