"""Whisper's layers in one call: what the operations give one by one, each sequence on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.whisper_layers import Sequence, WhisperLayers
from headstart.kernels.whisper_layers.reference import whisper_layers
from tests.kernels.compiled import LEVELS
from tests.kernels.whisper_layers.model import sequence, stack


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random model and batch in every run."""
    torch.manual_seed(0)


def encoder() -> tuple[WhisperLayers, list[Sequence]]:
    model = stack(causal=False, cross=False)
    return model, [sequence(model, 19, before=11, keep=7), sequence(model, 5)]


def decoder() -> tuple[WhisperLayers, list[Sequence]]:
    model = stack(causal=True, cross=True)
    return model, [sequence(model, 3, before=9, keep=3, heard=21), sequence(model, 1, heard=8)]


def batch_of(sequences: list[Sequence]) -> torch.Tensor:
    return torch.randn(sum(s.rows for s in sequences), 128)


def copies(sequences: list[Sequence]) -> list[Sequence]:
    return [replace(s, k=s.k.clone(), v=s.v.clone()) for s in sequences]


@pytest.mark.parametrize("made", [encoder, decoder])
@pytest.mark.parametrize("backend", LEVELS)
def test_equals_the_operations_one_by_one(backend: str, made: object) -> None:
    """Rows, what is kept and what is seen agree with plain torch around the same matmuls, up to a
    step of an activation's quantisation now and then."""
    assert callable(made)
    model, sequences = made()
    x, mine, theirs = batch_of(sequences), copies(sequences), copies(sequences)
    watched = [(0, 1), (1, 0)] if model.causal else []
    got, seen = model(x, mine, watched, backend=backend)
    every = (0, len(model.layers))
    want, wanted = whisper_layers(model, x, theirs, watched, every, backend)
    assert (got - want).norm() < 2e-3 * want.norm()
    for a, b in zip(mine, theirs, strict=True):
        assert (a.k - b.k).norm() <= 2e-3 * b.k.norm()
        assert (a.v - b.v).norm() <= 2e-3 * b.v.norm()
    for one, other in zip(seen, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)


def test_is_near_exact_matmuls() -> None:
    """The packed matmuls' own error is all that separates it from plain torch's."""
    model, sequences = encoder()
    x = batch_of(sequences)
    got = model(x, copies(sequences), backend="native")[0]
    want = model(x, copies(sequences), backend="reference")[0]
    assert (got - want).norm() < 0.03 * want.norm()


@pytest.mark.parametrize("made", [encoder, decoder])
def test_a_sequence_in_a_batch_is_as_if_alone(made: object) -> None:
    """Bit for bit, whatever stands beside it."""
    assert callable(made)
    model, sequences = made()
    x = batch_of(sequences)
    together = model(x, copies(sequences), backend="native")[0]
    parts = torch.split(x, [s.rows for s in sequences])
    alone = [
        model(part, copies([s]), backend="native")[0]
        for part, s in zip(parts, sequences, strict=True)
    ]
    assert torch.equal(together, torch.cat(alone))


def test_rows_one_by_one_are_rows_at_once() -> None:
    """A decoder's tokens run singly behind what is kept give what they give in one pass."""
    model = stack(causal=True, cross=True)
    whole = sequence(model, 4, keep=4, heard=13)
    x = torch.randn(4, 128)
    want = model(x, copies([whole]), backend="native")[0]
    single = copies([whole])[0]
    got = [
        model(x[i : i + 1], [replace(single, rows=1, before=i, keep=1)], backend="native")[0]
        for i in range(4)
    ]
    torch.testing.assert_close(torch.cat(got), want, atol=2e-3, rtol=0)


@pytest.mark.parametrize("made", [encoder, decoder])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_layer_by_layer_is_all_at_once(backend: str, made: object) -> None:
    """Bit for bit, what is kept included."""
    assert callable(made)
    model, sequences = made()
    x, whole, single = batch_of(sequences), copies(sequences), copies(sequences)
    want = model(x, whole, backend=backend)[0]
    for layer in range(len(model.layers)):
        x = model(x, single, only=layer, backend=backend)[0]
    assert torch.equal(x, want)
    for one, other in zip(whole, single, strict=True):
        assert torch.equal(one.k.nan_to_num(), other.k.nan_to_num())
        assert torch.equal(one.v.nan_to_num(), other.v.nan_to_num())


@pytest.mark.parametrize("backend", LEVELS)
def test_keys_in_two_parts_are_keys_in_one(backend: str) -> None:
    """Of an encoder, those that lie beyond first; of a decoder's sound, what follows on it: bit for
    bit, whatever their strides and numbers, the attention that was asked for included."""
    model = stack(causal=False, cross=False)
    for far, before, rows in ((13, 11, 19), (0, 4, 9), (8, 0, 3), (16, 16, 33)):
        one = sequence(model, rows, before=far + before)
        k, v = (
            torch.cat((part[:, :, far:], torch.full_like(part[:, :, :2], torch.nan)), dim=2)
            for part in (one.k, one.v)
        )
        wide = one.k.repeat_interleave(3, dim=2)  # every third position of it
        parts = Sequence(
            rows, k, v, before, 2, far_k=wide[:, :, : 3 * far : 3], far_v=one.v[:, :, :far]
        )
        x = torch.randn(rows, 128)
        got, want = (model(x, [s], backend=backend)[0] for s in (parts, one))
        assert torch.equal(got, want)
    model = stack(causal=True, cross=True)
    for heard, beyond, rows in ((21, 9, 3), (8, 8, 1), (5, 40, 9), (64, 1, 8)):
        whole = sequence(model, rows, heard=heard + beyond)
        assert whole.heard_k is not None
        assert whole.heard_v is not None
        cut = replace(
            whole,
            heard_k=whole.heard_k[:, :, :heard],
            heard_v=whole.heard_v[:, :, :heard],
            beyond_k=whole.heard_k[:, :, heard:],
            beyond_v=whole.heard_v[:, :, heard:],
        )
        x = torch.randn(rows, 128)
        watched = [(1, 1), (0, 0)]
        got, (saw,) = model(x, copies([cut]), watched, backend=backend)
        want, (seen,) = model(x, copies([whole]), watched, backend=backend)
        assert torch.equal(got, want)
        assert torch.equal(saw, seen)
        torch.testing.assert_close(saw.sum(dim=-1), torch.ones(2, rows))


@pytest.mark.parametrize("rows", range(2, 10))
def test_rows_that_share_the_sound_have_the_bits_of_each(rows: int) -> None:
    """However many of a decoder's rows are scored side by side: the first row of a text is what it
    is alone, and every level says the same."""
    model = stack(causal=True, cross=True)
    x, s = torch.randn(rows, 128), sequence(model, rows, heard=37)
    everything = [model(x, copies([s]), [(0, 0)], backend=name) for name in LEVELS]
    for got, (seen,) in everything[1:]:
        assert torch.equal(got, everything[0][0])
        assert torch.equal(seen, everything[0][1][0])
    texts = [replace(s, rows=1) for _ in range(rows)]
    alone, saw = model(x, copies(texts), [(0, 0)], backend="native")
    assert torch.equal(alone[0], everything[0][0][0])
    assert torch.equal(saw[0][0, 0], everything[0][1][0][0, 0])


def test_threads_do_not_change_a_bit() -> None:
    """One thread and three give the same."""
    model, sequences = decoder()
    x, before = batch_of(sequences), torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(model(x, copies(sequences), backend="native")[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_threads_that_share_few_words_of_a_long_sound(rows: int) -> None:
    """The heads of a word are shared among threads where its sound is long: the same bits, of the
    rows and of what they look at."""
    model = stack(width=256, heads=4, causal=True, cross=True)
    one = sequence(model, rows, before=4, keep=rows, heard=1500)
    x, before = torch.randn(rows, 256), torch.get_num_threads()
    watched, results = [(0, 1), (1, 3)], []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(model(x, copies([one]), watched, backend="native"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1][0], results[1][1][0])


def test_what_does_not_fit_is_refused_and_nothing_written() -> None:
    """Wrong rows, too little room, a missing sound: an error by name."""
    model, sequences = decoder()
    x = batch_of(sequences)
    good = sequences[0]
    for bad in (
        replace(good, rows=good.rows + 1),
        replace(good, keep=good.keep - 1, before=good.before + 2),
        replace(good, heard_k=None),
        replace(good, beyond_k=good.heard_k),
        replace(good, far_k=good.k, far_v=good.v[:, :, :1]),
        replace(good, v=good.v[:, :1]),
    ):
        kept = good.k.clone()
        with pytest.raises(KernelInputError):
            model(x, [bad, sequences[1]], backend="native")
        assert torch.equal(good.k, kept) or good.k.isnan().any()


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("watched", [[(2, 0)], [(0, 2)], [(-1, 0)], [(0, 1), (0, 1)]])
def test_heads_that_cannot_be_watched_are_refused(
    watched: list[tuple[int, int]], backend: str
) -> None:
    """One that is not there, or is named twice, would come back as memory nobody wrote."""
    model, sequences = decoder()
    with pytest.raises(KernelInputError, match=r"watched: .* below \(2, 2\)"):
        model(batch_of(sequences), copies(sequences), watched, backend=backend)


def test_layers_of_two_kinds_are_refused() -> None:
    """A layer that attends to a sound behind one that does not has no sound to attend to."""
    plain = stack(causal=True, cross=False).layers
    with pytest.raises(KernelInputError, match="all layers or none"):
        WhisperLayers([plain[0], *stack(causal=True, cross=True).layers], 2, causal=True)


def test_sizes_that_no_whisper_has_are_refused() -> None:
    """Heads must divide the width into whole vectors."""
    with pytest.raises(KernelInputError):
        stack(width=96, heads=5, causal=False, cross=False)
