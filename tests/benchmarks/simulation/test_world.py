"""The simulated world in virtual time: nothing is lost, and placement does what it is for."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from headstart.benchmarks.inputs.turn_taking import DEFAULT
from headstart.benchmarks.simulation.costs import CPU, H100, L40S, NodeKind
from headstart.benchmarks.simulation.policies import PLACEMENTS, Policy
from headstart.benchmarks.simulation.rows import row_of
from headstart.benchmarks.simulation.setup import Failure, Setup, Straggler
from headstart.benchmarks.simulation.world import DETECT_MS, ENDPOINT_MS, GATEWAY_MS, World

NO_WAIT_MS = ENDPOINT_MS + GATEWAY_MS


def ran(setup: Setup) -> World:
    world = World(setup)
    world.run()
    return world


def small(kind: NodeKind = H100, nodes: int = 3, sessions: int = 30, **changes: Any) -> Setup:
    return replace(Setup(kind, nodes, sessions, seconds=40, warm_up_s=0), **changes)


TROUBLES = {
    "none": small(),
    "ours": small(CPU, 2, 7),
    "ours, overloaded": small(CPU, 1, 8, policy=Policy(admission=False)),
    "ours, one dies": small(CPU, 2, 7, failures=(Failure(1, 10, 20),)),
    "one dies": small(failures=(Failure(1, 10, 20),)),
    "all die": small(failures=tuple(Failure(n, 10 + n, 25) for n in range(3))),
    "no room": small(replace(H100, capacity=4), 2, 20),
    "no room, one dies": small(replace(H100, capacity=10), failures=(Failure(0, 10, 20),)),
    "slow": small(stragglers=(Straggler(0, 5, 30, 20.0),)),
    "round robin, one dies": small(
        policy=Policy(placement="round_robin"), failures=(Failure(1, 10, 20),)
    ),
    "at the end, one dies": small(policy=Policy(ahead=False), failures=(Failure(1, 10, 20),)),
    "a day": small(diurnal=True),
    "little memory": small(replace(H100, kv_tokens=4_000)),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
def test_every_turn_is_answered_refused_or_cut(trouble: Setup) -> None:
    """And every person who is still there has a place, or is known to have none."""
    world = ran(trouble)
    tally = world.tally
    assert tally.begun > 5
    assert tally.begun == tally.answered + tally.refused + tally.cut
    assert tally.answered == len(tally.first_token_ms) - tally.cut
    assert all(not (person.open and person.counts) for person in world.people.values())
    assert all(status.in_flight == 0 for status in world.placer.status(world.now_ns))
    held = sum(status.sessions for status in world.placer.status(world.now_ns))
    placed = [p for p in world.people.values() if world.placer.node_of(p.name) is not None]
    assert held == len(placed)
    assert all(ms >= NO_WAIT_MS - 1 for ms in tally.first_token_ms)


def test_the_same_seed_gives_the_same_row() -> None:
    """To the last digit; another seed gives another."""
    rows = [row_of("x", ran(small(seed=seed))) for seed in (1, 1, 2)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_a_node_that_dies_loses_its_sessions_and_nobody_elses() -> None:
    """They move, and their next turns are cold; the others stay where they are."""
    world = ran(small(failures=(Failure(1, 20, 300),)))
    assert world.tally.moved > 0
    assert len(world.tally.cold_first_token_ms) > 0
    quiet = ran(small())
    assert quiet.tally.moved == 0
    assert quiet.tally.cold_first_token_ms == []
    prefilled = [sum(node.prefilled for node in each.nodes.values()) for each in (quiet, world)]
    assert prefilled[1] > prefilled[0]  # whole conversations were computed again


def test_a_turn_that_was_cold_waits_longer() -> None:
    """On a slow GPU the prefix of a moved session is felt, if nothing was sent ahead."""
    setup = small(
        L40S,
        policy=Policy(ahead=False),
        failures=(Failure(1, 15, 300),),
        people=replace(DEFAULT, window_tokens=8_000, system_tokens=3_000),
    )
    tally = ran(setup).tally
    cold = set(tally.cold_first_token_ms)
    warm = [ms for ms in tally.first_token_ms if ms not in cold]
    assert statistics.median(cold) > statistics.median(warm)


def test_a_node_that_recovers_takes_new_sessions() -> None:
    """After its cool-down and a probe; until then it has none."""
    people = replace(DEFAULT, session_s=15.0, session_sigma=0.1)
    world = ran(small(people=people, failures=(Failure(1, 5, 12),)))
    status = {each.name: each for each in world.placer.status(world.now_ns)}
    assert status["node-1"].sessions > 0


def test_more_nodes_do_not_make_it_slower() -> None:
    """p99 with two, four and eight nodes for the same people, beyond the noise of three seeds."""
    waits = []
    for nodes in (2, 4, 8):
        rows = [row_of("x", ran(small(L40S, nodes, 160, seed=seed))) for seed in (1, 2, 3)]
        waits.append(statistics.median(row["first_token_ms_p99"] for row in rows))
    assert waits[1] <= waits[0] * 1.1
    assert waits[2] <= waits[1] * 1.1


def test_work_ahead_hides_what_the_end_shows() -> None:
    """Prefilled and prepared while the person speaks: nothing is left at the endpoint."""
    ahead = row_of("x", ran(small()))
    late = row_of("x", ran(small(policy=Policy(ahead=False))))
    assert ahead["first_token_ms_p50"] == NO_WAIT_MS
    assert late["first_token_ms_p50"] > NO_WAIT_MS + 50
    assert late["computed_per_needed"] <= ahead["computed_per_needed"]


def test_without_admission_everybody_waits() -> None:
    """Three times what a node is sized for: refused, or late for all."""
    for admission in (True, False):
        policy = Policy(admission=admission)
        row = row_of("x", ran(small(CPU, 1, 3 * CPU.capacity, policy=policy, seconds=120)))
        if admission:
            kept = row
            assert row["refused_share"] > 0.3
        else:
            assert row["refused_share"] == 0
            assert row["first_token_ms_p95"] > kept["first_token_ms_p95"]


def test_a_slow_node_gets_fewer_of_those_who_come() -> None:
    """It has more work in flight and a longer queue, which placement counts."""
    people = replace(DEFAULT, session_s=10.0, session_sigma=0.2)
    setup = small(L40S, 4, 200, people=people, stragglers=(Straggler(0, 5, 300, 30.0),))
    held = [status.sessions for status in ran(setup).placer.status(0)]
    assert held[0] < statistics.mean(held[1:])


def test_round_robin_computes_prefixes_again_where_memory_is_short() -> None:
    """Each conversation is cached on every node; pinned, it is cached on one."""
    kind = replace(H100, kv_tokens=20_000)
    computed = {}
    for placement in PLACEMENTS:
        world = ran(small(kind, sessions=60, policy=Policy(placement=placement)))
        computed[placement] = row_of("x", world)["computed_per_needed"]
    assert computed["round_robin"] > 1.5 * computed["rendezvous"]


def test_the_loss_of_a_node_is_noticed_and_costs_no_more_than_the_turn() -> None:
    """Nobody waits longer than the detection and a cold prefix."""
    world = ran(small(failures=(Failure(1, 20, 300),)))
    assert max(world.tally.first_token_ms) < NO_WAIT_MS + DETECT_MS + 500
