"""Tests of the kernels are of the kernels: `reference` is asked for by name, not by the setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.own_kernels import not_in_plain_torch


@pytest.fixture(autouse=True)
def our_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where HEADSTART_KERNELS asks for plain torch, whose bits follow the batch's shape, these run
    without it."""
    with not_in_plain_torch(monkeypatch):
        yield
