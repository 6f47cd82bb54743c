"""Offloading, restoring and refusing when the cache is short."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.scheduling.admission import NS_PER_S, AdmissionRules
from tests.engine.commands import respond, user_item
from tests.engine.fakes import Bench, echo

RULES = AdmissionRules(idle_after_s=5.0, turn_tokens=64)
LONG = 243 * "x"  # makes a session of 16 blocks with all around it; none of them is shared


def bench_of(blocks: int = 64, host_blocks: int = 64) -> Bench:
    return Bench(blocks=blocks, host_blocks=host_blocks, rules=RULES, reply=lambda _: "yes")


def talk(bench: Bench, name: str, text: str = LONG, generation: int = 1) -> None:
    """One typed turn and its answer."""
    if name not in bench.engine.sessions:
        bench.open(name)
    bench.tell(api.AddItem(name, user_item(f"u{generation}", f"{name:2}{text}")))
    bench.tell(respond(generation, name))
    bench.run()


def wait(bench: Bench, seconds: float) -> None:
    bench.now_ns += int(seconds * NS_PER_S)
    bench.run()
    bench.engine.relieve_pressure()


def offloaded(bench: Bench) -> set[str]:
    return {name for name, s in bench.engine.sessions.items() if s.stream.offload_slot.offloaded}


def levels(bench: Bench, name: str) -> list[api.Level]:
    return [e.level for e in bench.events if isinstance(e, api.Pressure) and e.session == name]


def test_without_pressure_no_session_is_offloaded() -> None:
    """Idle sessions are not offloaded while the cache has room."""
    bench = bench_of(blocks=256)
    talk(bench, "a")
    wait(bench, 1_000)
    assert offloaded(bench) == set()
    assert bench.admission.level is api.Level.CALM


def test_the_longest_idle_goes_first_and_only_until_there_is_room() -> None:
    """Three sessions fill the pool; the one that is idle longest is offloaded, one that was just
    active never, and the level reports it."""
    bench = bench_of(blocks=53)
    for name in ("a", "b", "c"):
        talk(bench, name)
        wait(bench, 1)
    assert bench.admission.share >= 0.9
    assert offloaded(bench) == set()  # nobody is idle yet
    wait(bench, 3.5)
    assert offloaded(bench) == {"a"}
    assert levels(bench, "b")[-1] < api.Level.OFFLOADING
    wait(bench, 100)
    assert offloaded(bench) == {"a"}
    bench.engine.check_accounting()


def test_a_restored_session_continues_without_prefill() -> None:
    """An offloaded session's next turn computes only that turn's tokens, and its stream equals that
    of a session that was never offloaded."""
    bench, roomy = bench_of(blocks=53), bench_of(blocks=256)
    for b in (bench, roomy):
        for name in ("a", "b", "c"):
            talk(b, name)
        wait(b, 6)
    (gone,) = offloaded(bench)
    streams = [b.engine.sessions[gone].stream for b in (bench, roomy)]
    before = [stream.prefilled_tokens for stream in streams]
    for b in (bench, roomy):
        talk(b, gone, "and?", 2)
    assert gone not in offloaded(bench)
    assert bench.admission.restores == 1
    after = [stream.prefilled_tokens for stream in streams]
    assert after[0] - before[0] == after[1] - before[1] < 30
    assert bench.stream_text(gone) == roomy.stream_text(gone)


def test_idle_sessions_are_offloaded_for_one_that_needs_blocks() -> None:
    """A prompt that needs more than the free blocks offloads idle sessions in that step."""
    bench = bench_of(blocks=48)
    talk(bench, "a")
    talk(bench, "b")
    wait(bench, 6)
    assert offloaded(bench) == set()
    talk(bench, "b", LONG + LONG, 2)
    assert offloaded(bench) == {"a"}
    assert [e.reason for e in bench.of(api.Finished) if isinstance(e, api.Finished)] == (
        [api.FinishReason.STOP] * 3
    )


def test_a_newcomer_is_refused_with_numbers_and_a_time() -> None:
    """With no free blocks and no idle session, a new one is refused with the time until one will be
    idle; after that time it is admitted."""
    bench = bench_of(blocks=51)
    for name in ("a", "b", "c"):
        talk(bench, name)
    bench.tell(api.Open("late", "Hi"))
    (refused,) = (e for e in bench.events if isinstance(e, api.Failed))
    assert (refused.session, refused.about, refused.code) == ("late", "open", "no_room")
    assert "late" not in bench.engine.sessions
    assert "bytes" in refused.message
    assert 4 < refused.retry_after_s <= 5
    bench.engine.relieve_pressure()
    assert bench.admission.level is api.Level.REFUSING
    wait(bench, refused.retry_after_s)
    bench.tell(api.Open("late", "Hi"))
    bench.run()
    assert "late" in bench.engine.sessions
    assert bench.admission.level is not api.Level.REFUSING


def test_an_admitted_session_keeps_its_promised_blocks() -> None:
    """Of many sessions opened at once, as many are admitted as can all have their first turn, and
    nothing of these fails on the way."""
    bench = bench_of(blocks=30)
    for n in range(10):
        bench.tell(api.Open(f"s{n}", "Hi"))
    let_in = list(bench.engine.sessions)
    assert 0 < len(let_in) < 10
    for n, name in enumerate(let_in):
        bench.tell(api.AddItem(name, user_item("u", "x" * 50)), respond(n + 1, name))
    bench.run()
    reasons = {e.reason for e in bench.events if isinstance(e, api.Finished)}
    assert reasons == {api.FinishReason.STOP}
    failed = [event.code for event in bench.events if isinstance(event, api.Failed)]
    assert set(failed) == {"no_room"}  # those that were not let in


def test_pressure_levels_are_reported_in_order_and_revoked() -> None:
    """Degraded comes before offloading, offloading before refusing, and the level is calm again
    when the other sessions are closed."""
    bench = bench_of(blocks=100, host_blocks=0)
    for n in range(6):
        talk(bench, f"s{n}")
    seen = levels(bench, "s0")
    assert seen == sorted(seen)
    assert seen[:2] == [api.Level.DEGRADED, api.Level.OFFLOADING]
    for n in range(1, 6):
        bench.tell(api.Close(f"s{n}"))
    bench.engine.relieve_pressure()
    assert levels(bench, "s0")[-1] is api.Level.CALM


def test_levels_begin_at_eight_and_nine_tenths_of_the_pool() -> None:
    """The marks at which the gateway sends smaller frames."""
    bench = bench_of(blocks=100, host_blocks=0)
    seen = set()
    for n in range(6):
        talk(bench, f"s{n}")
        bench.engine.relieve_pressure()
        share, level = bench.admission.share, bench.admission.level
        if level is not api.Level.REFUSING:
            assert (level >= api.Level.DEGRADED) == (share >= 0.8)
            assert (level >= api.Level.OFFLOADING) == (share >= 0.9)
        seen.add(level)
    assert seen >= {api.Level.CALM, api.Level.DEGRADED, api.Level.OFFLOADING}


def test_a_session_is_restored_in_place_of_one_that_is_at_rest_but_not_idle() -> None:
    """Both are answered, however soon one speaks after the other."""
    bench = bench_of(blocks=40)
    talk(bench, "a")
    wait(bench, 6)
    talk(bench, "b", LONG + LONG)
    assert offloaded(bench) == {"a"}
    talk(bench, "a", "and?", 2)
    assert offloaded(bench) == {"b"}
    talk(bench, "b", "and?", 3)
    assert offloaded(bench) == {"a"}
    assert bench.admission.dropped == 0
    assert [bench.finished(n).reason for n in (2, 3)] == [api.FinishReason.STOP] * 2


@pytest.mark.parametrize("host_blocks", [0, 64])
def test_a_paused_speculation_survives_being_offloaded(host_blocks: int) -> None:
    """A session with a speculated answer and no endpoint is offloaded like others, and the answer
    continues as begun."""
    bench = Bench(blocks=26, host_blocks=host_blocks, rules=AdmissionRules(5.0, 0))
    bench.open()
    bench.say()
    bench.tell(api.Hush("s", api.TurnRef(1), 0, speculate=api.Sampling(repetition_penalty=1.0)))
    bench.run()
    wait(bench, 6)
    bench.open("other", "x" * 320)
    bench.now_ns += 6 * NS_PER_S
    bench.engine.relieve_pressure()
    assert ("s" in offloaded(bench)) == bool(host_blocks)
    bench.tell(api.EndSpeech("s", api.TurnRef(1), 0), respond())
    bench.run()
    assert bench.text() == echo("what is the capital of france")
