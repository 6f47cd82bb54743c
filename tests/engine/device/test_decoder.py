"""The decoder for GPUs on CPU tensors: the tokens of the CPU's decoder, in any cut and company."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.sampling import HostSampler
from headstart.engine.device.choice import step_sampler_of
from headstart.engine.device.decoder import DeviceDecoder, OnDevice
from headstart.engine.device.place import Place, on_cpu
from headstart.engine.device.sampling import DeviceSampler
from headstart.engine.errors import NoDevice
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import TailPolicy
from headstart.engine.process.load import LoadedModel
from headstart.engine.scheduling.scheduler import Plan, Work
from tests.engine.decoder.test_decoder import CONFIGS, VOCAB, moves, play
from tests.engine.harness import finish, greedy, load_tiny, logits_at_once
from tests.engine.models import playing, twins
from tests.engine.models.omni_twin import tiny_twin, write_directory
from tests.engine.models.rig import Rig
from tests.engine.reference_model import Offline
from tests.engine.tiny_gguf import QWEN2, TinyConfig, write_tiny_gguf
from tests.numerics import assert_as_near

KINDS = ("fp32", "fp16", "int8", "fp8")


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> TinyConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def model(config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(tmp_path_factory.mktemp("tiny"), config, "device")


@pytest.fixture(scope="module")
def offline(config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Offline:
    path = tmp_path_factory.mktemp("offline") / "tiny.gguf"
    return Offline(GgufFile(write_tiny_gguf(path, config)))


@given(moves)
@settings(max_examples=25, deadline=None)
def test_any_cut_of_the_input_gives_the_offline_logits(
    model: LoadedModel, offline: Offline, script: list[tuple[str, list[int]]]
) -> None:
    """As on the CPU's reference: as near to one offline forward by `transformers` as fp32 is."""
    assert isinstance(model.decoder, DeviceDecoder)
    stream = model.new_stream("s")
    play(model, stream, script)
    logits = finish(model, stream, token_budget=3)
    expected, exact = offline.logits(stream.tokens)
    stream.close()
    assert_as_near(logits, expected, exact)


@pytest.mark.parametrize("kv_dtype", KINDS)
def test_answers_are_those_of_the_cpu(config: TinyConfig, kv_dtype: str, tmp_path: Path) -> None:
    """Ten greedy tokens after a prompt in chunks, for each form of K and V, and logits within
    rounding of the CPU's reference. No slot that nobody wrote is read."""
    prompt, answers, rows = list(range(3, 40)), [], []
    for backend in ("reference", "device"):
        each = load_tiny(tmp_path, config, backend, kv_dtype=kv_dtype)
        each.cache.fill(float("nan"))
        rows.append(logits_at_once(each, prompt))
        stream = each.new_stream("s")
        stream.append(prompt)
        finish(each, stream, token_budget=7)
        stream.append([1])
        answers.append(greedy(each, stream, 10))
    assert answers[0] == answers[1]
    assert (rows[0] - rows[1]).abs().max() < 1e-3 * rows[0].abs().max()


def test_sessions_in_one_batch_do_not_touch_each_other(model: LoadedModel) -> None:
    """Five sessions, chunks and decode rows side by side, each as alone to fp32's rounding."""
    model.cache.fill(float("nan"))
    numbers = np.random.default_rng(1)
    streams = [model.new_stream(str(i)) for i in range(5)]
    for stream, length in zip(streams, (1, 4, 7, 13, 20), strict=True):
        stream.append(numbers.integers(0, VOCAB, length).tolist())
    for step in range(6):
        works = [
            Work(s, min(s.pending, 1 + (step + i) % 5), s.pending <= 1 + (step + i) % 5, 0)
            for i, s in enumerate(streams)
            if s.pending
        ]
        logits = model.runner.step(Plan(tuple(works))).logits
        for stream, row in logits.items():
            alone = logits_at_once(model, stream.tokens)
            assert (row - alone).abs().max() < 1e-4 * alone.abs().max()
            stream.append([int(row.argmax())])
        assert logits
    model.pool.check_accounting([stream.table for stream in streams])
    for stream in streams:
        stream.close()


def test_recording_ahead_changes_nothing(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are recorded before a session comes; what is in the cache stays as it is."""
    assert isinstance(model.decoder, DeviceDecoder)
    model.cache.fill(0.0)  # what nobody wrote may be NaN, which equals nothing
    stream = model.new_stream("s")
    stream.append(list(range(2, 30)))
    finish(model, stream, token_budget=7)
    before = [pools.k.clone() for pools in model.cache.pools]  # type: ignore[attr-defined]
    waits: list[Place] = []
    monkeypatch.setattr(Place, "wait", lambda place: waits.append(place))
    assert model.decoder.prepare(model.cache, streams=5, tokens=40) == 8
    assert len(waits) == 1
    sizes = model.decoder._steps(model.cache).sizes  # type: ignore[arg-type]
    assert {(s, b) for s in (1, 2, 4, 8) for b in (8, 32)} <= set(sizes)
    after = [pools.k for pools in model.cache.pools]  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    stream.append([1])
    logits = finish(model, stream, token_budget=7)
    assert (logits - logits_at_once(model, stream.tokens)).abs().max() < 1e-3
    stream.close()


def test_no_room_for_a_step_is_named_at_the_start(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads which setting takes the memory."""
    assert isinstance(model.decoder, DeviceDecoder)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("there is no room")

    decoder = DeviceDecoder(model.spec, model.decoder.weights, model.decoder.place)
    monkeypatch.setattr(decoder, "_compute", full)
    with pytest.raises(NoDevice, match="kv_pool_mib"):
        decoder.prepare(model.cache, streams=2, tokens=8)


def test_logits_are_sampled_where_they_lie(model: LoadedModel) -> None:
    """The engine's backend gets the sampler of its decoder's place."""
    assert isinstance(step_sampler_of(model.decoder), DeviceSampler)
    assert isinstance(step_sampler_of(None), HostSampler)


def test_a_soft_token_is_its_embedding(model: LoadedModel) -> None:
    """A soft token that holds word 7's embedding gives word 7's logits; another gives others."""
    stream = model.new_stream("s")
    word = model.decoder.embed(torch.tensor([7])).numpy()
    ids = stream.soft.intern(np.concatenate([word, word * 2]))
    wanted = logits_at_once(model, [1, 2, 7, 3])
    stream.append([1, 2, ids[0], 3])
    assert (finish(model, stream) - wanted).abs().max() < 1e-4
    stream.reconcile([1, 2, ids[1], 3])
    assert (finish(model, stream) - wanted).abs().max() > 1e-2
    stream.close()


def test_observed_queries_give_the_attention_of_the_cpu(tmp_path: Path) -> None:
    """What thins past turns out by attention gets the same mass from both."""
    found = []
    for backend in ("reference", "device"):
        each = load_tiny(tmp_path, QWEN2, backend, kv_dtype="int8", kv_text_kept=0.5)
        stream = each.new_stream("s")
        stream.append(list(range(2, 20)))
        greedy(each, stream, 4)
        mass = each.runner.attention(stream)
        assert mass is not None
        found.append(mass)
    assert np.abs(found[0] - found[1]).max() < 1e-4


# --- model directories ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))


@pytest.mark.parametrize("int8", [False, True], ids=["float", "int8"])
def test_a_flagship_model_streams_sound_and_pictures(omni: Path, int8: bool) -> None:
    """Soft tokens at three-axis positions, in random steps: in fp64 the exact model's logits to
    1e-9, in int8 within 5 %, and either way the same in every cut."""
    dtype = torch.float64
    builds = {"exact": Loading(dtype)}
    device = OnDevice(on_cpu(dtype), int8)
    builds |= {name: Loading(dtype, build=device) for name in ("device", "again")}
    got = {}
    for name, how in builds.items():
        chance = random.Random(4)
        rig = Rig(load(omni, how), dtype, on_device=name != "exact")
        clip = playing.Sounded(playing.speech(chance, 40_000), playing.camera(chance, 4, 1.0), 1.0)
        stream = rig.stream()
        stream.append([1, 2])
        playing.play(rig, stream, clip, TailPolicy.CLOSED, chance)
        stream.append([4, 5, 6])
        logits = rig.settle(stream, random.Random(name))
        assert logits is not None
        got[name] = logits.clone()
    error = (got["device"] - got["exact"]).norm()
    assert error < (0.05 if int8 else 1e-9) * got["exact"].norm()
    assert error > 0 if int8 else True
    assert (got["device"] - got["again"]).abs().max() < 1e-9


def test_streams_in_one_batch_get_what_transformers_gives_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """In fp64, pieces of three streams side by side: to 1e-9."""
    theirs = twins.qwen2()
    folder = twins.save(theirs, tmp_path_factory.mktemp("qwen2"))
    how = Loading(torch.float64, build=OnDevice(on_cpu(torch.float64)))
    rig = Rig(load(folder, how), torch.float64, on_device=True)
    draw = random.Random(2)
    read = [[draw.randrange(90) for _ in range(13 + 9 * i)] for i in range(3)]
    streams = [rig.stream(str(i)) for i in range(3)]
    for stream, ids in zip(streams, read, strict=True):
        stream.append(ids)
    got = {}
    for size in itertools.cycle((5, 1)):
        works = [Work(s, min(s.pending, size), True, 0) for s in streams if s.pending]
        if not works:
            break
        got.update(rig.runner.step(Plan(tuple(works))).logits)
    for stream, ids in zip(streams, read, strict=True):
        with twins.in_double("qwen2"), torch.inference_mode():
            wanted = theirs(torch.tensor([ids])).logits[0, -1]
        assert (got[stream] - wanted).abs().max() <= 1e-9
