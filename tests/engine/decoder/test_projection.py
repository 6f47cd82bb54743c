"""Projections in int8, made and calibrated while a model is built."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.engine.decoder.layers import Linear
from headstart.engine.decoder.projection import (
    Calibration,
    Int8Projection,
    Projection,
    calibrate,
    int8_projections,
    projection,
)
from headstart.kernels.native import BACKENDS, limit_threads_here, threads


def weight(rows: int = 48, cols: int = 64, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    made: Tensor = torch.randn(rows, cols) * cols**-0.5
    return made.to(dtype)


def off(ours: Projection, exact: Projection, x: Tensor) -> float:
    wanted = exact(x)
    return float((ours(x) - wanted).norm() / wanted.norm())


def test_they_are_float_unless_asked() -> None:
    """And inside of the context too where int8 does not fit: groups of 32, fp64, no data."""
    assert isinstance(projection(weight()), Linear)
    with int8_projections() as made:
        assert isinstance(projection(weight(cols=48)), Linear)
        assert isinstance(projection(weight(dtype=torch.float64)), Linear)
        assert isinstance(projection(weight().to("meta")), Linear)
        assert made == []
        assert projection(weight()) is made[0]
    assert isinstance(projection(weight()), Linear)


def test_in_int8_it_is_nearly_the_float_one() -> None:
    """Of any leading shape, with a bias, a percent off; until it is settled, exact."""
    torch.manual_seed(0)
    w, bias, x = weight(), torch.randn(48).bfloat16(), torch.randn(3, 5, 64)
    exact, ours = Linear(w, bias), Int8Projection(w, bias)
    assert torch.equal(ours(x), exact(x))
    error = ours.settle(0.03)
    assert ours.is_int8
    assert ours(x).shape == (3, 5, 48)
    assert 0 < off(ours, exact, x) < 0.015
    assert error == pytest.approx(off(ours, exact, x), rel=1e-3)


def test_what_int8_changes_too_much_stays_in_float() -> None:
    """A weight that a few huge numbers spoil; the others are settled in int8, and the report says
    so. One that no sample reached is int8."""
    torch.manual_seed(0)
    spoilt = weight(dtype=torch.float32)
    spoilt[:, ::32] *= 500.0
    x = torch.randn(20, 64)
    x[:, ::32] = 0.0  # so that they do not show in what is exact
    x[:, 1::32] *= 100.0
    good, bad, unused = (Int8Projection(w, None) for w in (weight(), spoilt, weight()))

    def run() -> None:
        good(torch.randn(20, 64))
        bad(x)

    found = calibrate([good, bad, unused], run)
    assert (good.is_int8, bad.is_int8, unused.is_int8) == (True, False, True)
    assert (found.projections, found.in_float) == (3, 1)
    assert 0 < found.error_mean <= found.error_max < 0.015
    assert torch.equal(bad(x), Linear(spoilt)(x))
    assert calibrate([], lambda: None) == Calibration(0, 0, 0.0, 0.0)


def test_a_thread_may_leave_the_pool_to_others() -> None:
    """A limit of one thread holds where it was set, and gives the same bits."""
    import threading

    ours = Int8Projection(weight(), None)
    ours.settle(1.0)
    x = torch.randn(40, 64)
    wanted, found = ours(x), []

    def alone() -> None:
        limit_threads_here(1)
        found.append((threads(), ours(x)))

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    assert found[0][0] == 1
    assert torch.equal(found[0][1], wanted)
    assert threads() == torch.get_num_threads() or threads() >= 1
    assert "native" in BACKENDS


def test_no_rows_give_no_rows() -> None:
    """As with float weights."""
    with int8_projections() as made:
        ours = projection(torch.randn(64, 32))
    calibrate(made, lambda: None)
    assert made[0].is_int8
    assert ours(torch.empty(2, 0, 32)).shape == (2, 0, 64)
