"""Log-mel power: torch's own transform's, and the same bits in any cut and on any path."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchaudio.functional import melscale_fbanks

from headstart.kernels.errors import KernelInputError
from headstart.kernels.log_mel import LogMelFilters
from headstart.kernels.log_mel.tables import make_tables
from tests.kernels.compiled import LEVELS


def sound(samples: int) -> Tensor:
    return (torch.randn(samples) * torch.linspace(1e-4, 1, samples)).double()


@pytest.mark.parametrize("mels", [1, 80, 128])
@pytest.mark.parametrize("samples", [0, 399, 400, 559, 560, 3_333])
def test_equals_torchs_transform(mels: int, samples: int) -> None:
    """To the last few bits of fp64, every whole frame; both C paths have the same bits."""
    filters, x = LogMelFilters(mels), sound(samples)
    got, want = (filters(x, 160, backend=backend) for backend in ("native", "reference"))
    assert got.shape == want.shape == (max((samples - 400) // 160 + 1, 0), mels)
    assert ((got - want).abs() < 1e-12).all()
    assert all(torch.equal(got, filters(x, 160, backend=name)) for name in LEVELS)


def test_each_frequency_is_where_it_belongs() -> None:
    """A tone in each bin, filters aside: the loudest band is the one whose triangle is highest
    there, and its power is that of the tone under a Hann window."""
    filters = LogMelFilters(80)
    table = filters._tables.filters
    turns = torch.arange(400, dtype=torch.float64) * 2 * math.pi / 400
    for k in range(3, 198):
        power = 10 ** filters((k * turns + 0.3).cos(), 160, backend="native")[0]
        spread = torch.tensor([1.0, 4.0, 1.0], dtype=torch.float64) * 2500  # 100, and 50 beside it
        assert torch.allclose(power, (spread @ table[k - 1 : k + 2]).clamp_min(1e-10), rtol=1e-9)


def test_no_cut_and_no_thread_changes_a_bit() -> None:
    """Frames alone have the bits they have beside others, on three threads and one."""
    filters, x = LogMelFilters(80), sound(30_000)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        whole = filters(x, 160, backend="native")
        torch.set_num_threads(1)
        for i in (0, 5, 101, len(whole) - 1):
            alone = filters(x[160 * i : 160 * i + 400], 160, backend="native")
            assert torch.equal(alone[0], whole[i])
    finally:
        torch.set_num_threads(before)


def test_silence_is_the_floor_exactly() -> None:
    """No power is -10, not nearly."""
    assert (LogMelFilters(80)(torch.zeros(800, dtype=torch.float64), 160) == -10.0).all()


@pytest.mark.parametrize("mels", [80, 128])
def test_the_tables_are_those_of_torch_to_its_rounding(mels: int) -> None:
    """Sines, window and Slaney's filters; and each is a number that fp64 can hold no better."""
    tables = make_tables(mels)
    turns = torch.arange(400, dtype=torch.float64) * 2 * math.pi / 400
    assert (tables.cosine - turns.cos()).abs().max() < 2e-15
    assert (tables.sine - turns.sin()).abs().max() < 2e-15
    hann = torch.hann_window(400, dtype=torch.float64)
    assert (tables.window - hann).abs().max() < 2e-15
    theirs = melscale_fbanks(201, 0.0, 8000.0, mels, 16_000, norm="slaney", mel_scale="slaney")
    assert (tables.filters - theirs).abs().max() < 2e-7
    assert tables.cosine[50] == math.sqrt(0.5)
    assert tables.window[100] == 0.5


def test_what_does_not_fit_is_refused() -> None:
    """fp32 sound, no hop, no filter."""
    filters = LogMelFilters(80)
    with pytest.raises(KernelInputError, match="samples: expected float64"):
        filters(torch.zeros(800), 160)
    with pytest.raises(KernelInputError, match="hop"):
        filters(torch.zeros(800, dtype=torch.float64), 0)
    with pytest.raises(KernelInputError, match="mels"):
        LogMelFilters(0)
