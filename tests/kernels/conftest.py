"""Tests of the kernels are of the kernels: `reference` is asked for by name, not by the setting."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from headstart.kernels import native


@pytest.fixture(autouse=True)
def our_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where HEADSTART_KERNELS asks for plain torch, whose bits follow the batch's shape, these run
    without it."""
    if os.environ.get("HEADSTART_KERNELS") != "reference":
        yield
        return
    monkeypatch.delenv("HEADSTART_KERNELS")
    native.default_backend.cache_clear()
    yield
    native.default_backend.cache_clear()
