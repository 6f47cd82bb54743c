"""Sampling on a device: the tokens of the CPU's sampler, and what comes to the host."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from headstart.engine.api import Sampling
from headstart.engine.decoder.sampling import Draw, HostSampler, Sampler, TokenSampler
from headstart.engine.device import sampling as module
from headstart.engine.device.place import Place, on_cpu
from headstart.engine.device.sampling import Asked, DeviceSampler, choose
from headstart.engine.errors import BrokenNumbers
from tests.engine.device.fake_gpu import GPU, Waits

VOCAB = 700
MOST_BEST = 48


class Tape:
    """One answer, sampled on the device and on the host with equal samplers."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.samplers = [Sampler(sampling, VOCAB, frozenset({5})) for _ in range(2)]
        self.said: list[int] = []

    def draws(self, logits: torch.Tensor, banned: frozenset[int]) -> list[Draw]:
        """For the device, and for the host."""
        return [Draw(sampler, logits, list(self.said), banned) for sampler in self.samplers]


def settings(chance: random.Random) -> Sampling:
    return Sampling(
        temperature=chance.choice([0.0, 0.0, 0.2, 0.7, 1.0, 2.0]),
        top_k=chance.choice([0, 0, 1, 2, 20, MOST_BEST, MOST_BEST + 1, VOCAB, 10 * VOCAB]),
        top_p=chance.choice([1.0, 1.0, 0.05, 0.5, 0.9, 0.999]),
        repetition_penalty=chance.choice([1.0, 1.1, 1.1, 0.8, 5.0]),
        seed=chance.randrange(1000),
    )


def rows_of(chance: random.Random, count: int) -> torch.Tensor:
    """Logits of any spread; some in steps of bf16, so that many are equal; some with -inf."""
    draw = torch.Generator().manual_seed(chance.randrange(10**6))
    spread = torch.tensor([chance.choice([0.0, 0.1, 1.0, 3.0, 10.0]) for _ in range(count)])
    rows = torch.randn(count, VOCAB, generator=draw) * spread[:, None]
    for row in rows:
        if chance.random() < 0.5:
            row.copy_(row.bfloat16().float())
        if chance.random() < 0.2:
            row[torch.randperm(VOCAB, generator=draw)[: VOCAB - 3]] = -torch.inf
    return rows


def token_of(sampler: DeviceSampler | HostSampler, draws: Sequence[Draw]) -> list[int]:
    sampled = sampler(draws)
    return [sampled.token(draw) for draw in draws]


@pytest.mark.parametrize("seed", range(12))
def test_tokens_are_those_of_the_host(seed: int) -> None:
    """Twelve answers of random settings side by side, of which some go to the host's sampler: over
    twenty steps the same tokens, and so the same random numbers, as each alone on the host."""
    chance = random.Random(seed)
    device, host = DeviceSampler(on_cpu(), MOST_BEST), HostSampler()
    tapes = [Tape(settings(chance)) for _ in range(12)]
    for step in range(20):
        present = [tape for tape in tapes if chance.random() < 0.8]
        rows = rows_of(chance, len(present))
        before = rows.clone()
        banned = [frozenset(chance.sample(range(VOCAB), 2 * (step == 0))) for _ in present]
        pairs = [
            tape.draws(row, none) for tape, row, none in zip(present, rows, banned, strict=True)
        ]
        mine = token_of(device, [pair[0] for pair in pairs])
        theirs = token_of(host, [pair[1] for pair in pairs])
        assert mine == theirs, [tape.sampling for tape in present]
        assert torch.equal(rows, before)  # another reader has them too
        for tape, token, none in zip(present, mine, banned, strict=True):
            assert token not in none
            tape.said.append(token)


def test_a_whole_vocabulary_gives_the_same_tokens() -> None:
    """152,000 tokens, flat: the nucleus is wider than what is sorted, the draw from all is fine."""
    logits = torch.randn(152_000, generator=torch.Generator().manual_seed(1))
    samplings = [
        Sampling(temperature=1.0, seed=3),
        Sampling(temperature=0.7, top_p=0.9, seed=4),
        Sampling(temperature=0.1, top_p=0.9, seed=5),
        Sampling(temperature=1.0, top_k=200, top_p=0.95, seed=6),
    ]
    for _ in range(3):
        pairs = [[Draw(Sampler(s, len(logits)), logits, [1, 2]) for s in samplings] for _ in "ab"]
        assert token_of(DeviceSampler(on_cpu()), pairs[0]) == token_of(HostSampler(), pairs[1])
        samplings = [replace_seed(s) for s in samplings]


def replace_seed(sampling: Sampling) -> Sampling:
    return Sampling(**{**_fields(sampling), "seed": (sampling.seed or 0) + 10})


def _fields(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


class Watched(Place):
    """A place that counts the numbers which leave it."""

    sent: ClassVar[Counter[str]] = Counter()

    def to_host(self, x: torch.Tensor) -> torch.Tensor:
        self.sent["copies"] += 1
        self.sent["numbers"] += x.numel()
        return super().to_host(x)


@pytest.fixture
def place() -> Watched:
    plain = on_cpu()
    made = Watched(plain.device, plain.dtype, plain.operations)
    made.sent.clear()
    return made


def test_tokens_come_to_the_host_and_logits_stay(place: Watched) -> None:
    """Thirty-two answers and two probes: one copy of three numbers each, and of what is watched."""
    rows = torch.randn(34, VOCAB)
    draws = [
        Draw(Sampler(Sampling(temperature=0.5, seed=i), VOCAB), rows[i], []) for i in range(32)
    ]
    sampled = DeviceSampler(place)(draws, [rows[32], rows[33]], (3, 5))
    assert place.sent == {"copies": 1, "numbers": 32 * 3 + 2 * 2}
    expected = HostSampler()((), [rows[32], rows[33]], (3, 5))
    for number in range(2):
        wanted = expected.probabilities(number)
        assert sampled.probabilities(number) == pytest.approx(wanted, rel=1e-6)


def test_what_a_device_cannot_sample_is_copied_for_that_answer_alone(place: Watched) -> None:
    """A top_k beyond what is sorted, a nucleus wider than that, and another kind of sampler: a row
    of logits each. The narrow nucleus beside them stays."""
    flat, steep = torch.zeros(VOCAB), torch.arange(VOCAB).float()

    class Fixed:
        def sample(self, logits: torch.Tensor, context: Sequence[int]) -> int:
            assert not logits[8].isfinite()
            return 9

    large_k = Sampling(temperature=1.0, top_k=MOST_BEST + 1, seed=1)
    nucleus = Sampling(temperature=1.0, top_p=0.9, seed=1)

    def samplers() -> list[TokenSampler]:
        return [*(Sampler(each, VOCAB) for each in (large_k, nucleus, nucleus)), Fixed()]

    rows = [flat, flat, steep, flat]
    banned = frozenset({8})
    draws = [Draw(s, row, [], banned) for s, row in zip(samplers(), rows, strict=True)]
    sampled = DeviceSampler(place, MOST_BEST)(draws)
    assert place.sent == {"copies": 1 + 3, "numbers": 3 * 2 + 3 * VOCAB}
    alone = [replace(draw, sampler=s) for draw, s in zip(draws, samplers(), strict=True)]
    assert [sampled.token(draw) for draw in draws] == token_of(HostSampler(), alone)


def test_where_memory_runs_out_the_host_samples(
    place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens, of the random numbers that were drawn; probabilities too."""
    rows = rows_of(random.Random(3), 4)
    tapes = [Tape(Sampling(temperature=1.0, seed=i, top_p=0.5 + i / 8)) for i in range(4)]
    pairs = [tape.draws(row, frozenset()) for tape, row in zip(tapes, rows, strict=True)]

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("there is no room")

    monkeypatch.setattr(module, "choose", full)
    sampled = DeviceSampler(place)([pair[0] for pair in pairs], [rows[0]], (1,))
    expected = HostSampler()([pair[1] for pair in pairs], [rows[0]], (1,))
    for mine, theirs in pairs:
        assert sampled.token(mine) == expected.token(theirs)
    assert sampled.probabilities(0) == pytest.approx(expected.probabilities(0), rel=1e-6)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_broken_logits_fail_their_own_answer(bad: float) -> None:
    """In every kind of row; no index is out of range, which would end a GPU's context."""
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.5},
    ]
    good = torch.randn(VOCAB)
    broken = good.clone()
    broken[3] = bad
    if bad < 0:
        broken.fill_(bad)
    draws = [
        Draw(Sampler(Sampling(seed=1, **kind), VOCAB), row, [3, 4])
        for kind in kinds
        for row in (broken, good)
    ]
    sampled = DeviceSampler(on_cpu(), MOST_BEST)(draws)
    for number, draw in enumerate(draws):
        if number % 2:
            assert 0 <= sampled.token(draw) < VOCAB
        else:
            with pytest.raises(BrokenNumbers):
                sampled.token(draw)


def test_without_answers_a_step_is_waited_for(
    place: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that only prefills ends here too: its time is the next budget's measure."""
    waits: list[Place] = []
    monkeypatch.setattr(Place, "wait", lambda place: waits.append(place))
    DeviceSampler(place)([])
    assert waits == [place]
    assert not place.sent


def test_sampling_waits_for_nothing_on_a_gpu() -> None:
    """All kinds of rows on tensors that claim to be on a GPU: nothing of the CPU meets them, and no
    number goes to the host before the end."""
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 1.0},
    ]
    samplers = [Sampler(Sampling(seed=1, **kind), VOCAB) for kind in kinds]
    draws = [Draw(s, torch.zeros(VOCAB), [1, 2], frozenset({7})) for s in samplers]
    asked, on_host = Asked.of(draws, MOST_BEST)
    assert not on_host
    assert asked.counts == (1, 2, 1)
    arrays = asked.arrays((1, 2))
    with FakeTensorMode(), Waits():  # type: ignore[no-untyped-call]
        on = {
            name: torch.empty(
                array.shape, dtype=torch.float64 if array.dtype.kind == "f" else torch.int64
            ).to(GPU)
            for name, array in arrays.items()
        }
        rows = torch.empty(len(draws), VOCAB, device=GPU)
        chosen = choose(rows, asked, on)
        assert (chosen.device, chosen.dtype, chosen.shape) == (GPU, torch.float64, (4, 3))
