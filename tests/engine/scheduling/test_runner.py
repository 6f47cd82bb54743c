"""Running plans: accounting after any history, refusals, and failures in a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel
from headstart.engine.scheduling.scheduler import Plan, Request, Scheduler, Work
from tests.engine.harness import EITHER, alike, finish, greedy, load_tiny, logits_at_once
from tests.engine.tiny_gguf import TinyConfig

SMALLEST = TinyConfig(layers=1, hidden=32, ffn=32, heads=2, kv_heads=1)
BLOCK = 4


def model_with(num_blocks: int, folder: Path, backend: str = "native") -> LoadedModel:
    bytes_per_block = BLOCK * 2 * SMALLEST.kv_width * 4
    return load_tiny(folder, SMALLEST, backend, kv_pool_bytes=num_blocks * bytes_per_block)


@pytest.fixture(scope="module", params=EITHER)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return model_with(10, tmp_path_factory.mktemp("tiny"), request.param)


@pytest.fixture
def fresh_stream(model: LoadedModel) -> Any:
    stream = model.new_stream("fresh")
    yield stream
    stream.close()


def work(stream: Stream, count: int, wants_logits: bool = True) -> Work:
    return Work(stream, count, wants_logits, deadline_ns=0)


def test_a_step_advances_exactly_what_was_planned(model: LoadedModel, fresh_stream: Stream) -> None:
    """kv_len moves by the scheduled tokens, blocks follow, logits come only where wanted."""
    fresh_stream.append([1] * 9)
    result = model.runner.step(Plan((work(fresh_stream, 5, wants_logits=False),)))
    assert (result.logits, result.refused) == ({}, {})
    assert (fresh_stream.kv_len, fresh_stream.pending) == (5, 4)
    assert len(fresh_stream.table.blocks) == 2
    result = model.runner.step(Plan((work(fresh_stream, 4),)))
    assert result.logits[fresh_stream].shape == (model.spec.vocab_size,)
    assert fresh_stream.pending == 0
    assert not model.runner.step(Plan()).logits


def test_a_refused_stream_is_unchanged_and_the_others_go_on(
    model: LoadedModel, fresh_stream: Stream
) -> None:
    """Two streams, room for one: the first gets its logits, the second a `CacheFull` to report."""
    big = model.new_stream("big")
    fresh_stream.append([1, 2, 3])
    big.append([1] * 40)
    result = model.runner.step(Plan((work(fresh_stream, 3), work(big, 40))))
    assert set(result.logits) == {fresh_stream}
    assert (result.refused[big].needed, result.refused[big].free) == (10, 9)
    assert (big.kv_len, big.table.blocks, big.pending) == (0, [], 40)
    model.pool.check_accounting([fresh_stream.table, big.table])
    fresh_stream.truncate(0)
    assert alike(model, finish(model, big, 40), logits_at_once_after_closing(model, big))


def logits_at_once_after_closing(model: LoadedModel, stream: Stream) -> torch.Tensor:
    tokens = list(stream.tokens)
    stream.close()
    return logits_at_once(model, tokens)


def test_a_failing_decoder_leaves_everything_as_it_was(
    model: LoadedModel, fresh_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in a step is raised; streams and pool do not change, and the step can be
    repeated."""
    fresh_stream.append([1, 2, 3, 4, 5])
    steps = model.runner.steps

    def fail(*_: object) -> None:
        raise MemoryError("no memory for activations")

    monkeypatch.setattr(type(model.decoder), "forward", fail)
    with pytest.raises(MemoryError):
        finish(model, fresh_stream)
    monkeypatch.undo()
    assert (fresh_stream.kv_len, model.pool.used_blocks, model.runner.steps) == (0, 0, steps)
    model.pool.check_accounting([fresh_stream.table])
    assert alike(model, finish(model, fresh_stream), logits_at_once(model, [1, 2, 3, 4, 5]))


def test_a_stale_plan_is_our_own_mistake(model: LoadedModel, fresh_stream: Stream) -> None:
    """A plan made before its stream was cut fails an assertion before anything is computed."""
    fresh_stream.append([1, 2, 3])
    plan = Plan((work(fresh_stream, 3),))
    fresh_stream.truncate(1)
    with pytest.raises(AssertionError, match="stale"):
        model.runner.step(plan)


def test_interleaved_sessions_answer_as_they_do_alone(tmp_path: Path) -> None:
    """Three sessions in one scheduler, decoding while others prefill, give the greedy answers that
    each gives alone."""
    model = model_with(60, tmp_path)
    prompts = {name: [ord(c) for c in name * 5] for name in ("abc", "de", "fghij")}
    alone = {}
    for name, prompt in prompts.items():
        stream = model.new_stream(name)
        stream.append(prompt)
        alone[name] = greedy(model, stream, 12)
        stream.close()
    streams = {name: model.new_stream(name) for name in prompts}
    together: dict[str, list[int]] = {name: [] for name in prompts}
    scheduler = Scheduler(token_budget=6)
    for step in range(200):
        for index, (name, prompt) in enumerate(prompts.items()):
            if step == 3 * index:  # they come one after the other
                streams[name].append(prompt)
        requests = [
            Request(stream, deadline_ns=0, generating=True)
            for stream in streams.values()
            if len(together[stream.name]) < 12
        ]
        for stream, row in model.runner.step(scheduler.plan(requests, step)).logits.items():
            together[stream.name].append(int(row.argmax()))
            stream.append(together[stream.name][-1:])
    assert together == alone


Move = tuple[str, int, int]
histories = st.lists(
    st.tuples(st.sampled_from("arrtxss"), st.integers(0, 2), st.integers(0, 30)), max_size=40
)


@given(histories)
@settings(max_examples=60, deadline=None)
def test_accounting_holds_after_any_history(model: LoadedModel, history: list[Move]) -> None:
    """Random operations on three streams in a pool of ten blocks: the accounting and the streams'
    counters hold after each, and a full cache refuses without other effects."""
    streams = [model.new_stream(str(i)) for i in range(3)]
    scheduler = Scheduler(token_budget=9)

    def step() -> None:
        requests = [Request(s, i, generating=True) for i, s in enumerate(streams)]
        result = model.runner.step(scheduler.plan(requests, now_ns=0))
        assert all(isinstance(full, CacheFull) for full in result.refused.values())
        assert not set(result.refused) & set(result.logits)

    def reopen(which: int) -> None:
        streams[which].close()
        streams[which] = model.new_stream(str(which))

    for what, which, amount in history:
        stream = streams[which]
        match what:
            case "a":
                stream.append([amount] * (amount // 3))
            case "r":
                stream.reconcile([amount % 3] * amount, start=min(amount // 2, len(stream)))
            case "t":
                stream.truncate(min(amount, len(stream)))
            case "x":
                reopen(which)
            case "s":
                step()
        model.pool.check_accounting([s.table for s in streams])
        for s in streams:
            assert len(s.table.blocks) == model.pool.blocks_for(s.kv_len)
            assert s.prefilled_tokens == s.kv_len + s.rolled_back_kv_tokens
    for stream in streams:
        stream.close()
    assert model.pool.used_blocks == 0


@pytest.mark.parametrize("row", [0, 3, 6])
def test_probed_logits_are_those_of_that_place(
    model: LoadedModel, fresh_stream: Stream, row: int
) -> None:
    """Logits at a probed index equal those of a prompt that ends there; the last token's are not
    affected, and both may be the same."""
    tokens = [5, 9, 3, 7, 2, 8, 1]
    fresh_stream.append(tokens)
    result = model.runner.step(Plan((Work(fresh_stream, 7, True, 0, probe_row=row),)))
    assert alike(model, result.logits[fresh_stream], logits_at_once(model, tokens))
    assert alike(model, result.probed[fresh_stream], logits_at_once(model, tokens[: row + 1]))
    if row:
        assert alike(model, result.before[fresh_stream], logits_at_once(model, tokens[:row]))
    else:
        assert fresh_stream not in result.before
