"""Tests of what our kernels give bit for bit, where HEADSTART_KERNELS asks for plain torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from headstart.kernels import native


@contextlib.contextmanager
def not_in_plain_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """HEADSTART_KERNELS=reference does not count meanwhile; the other backends do."""
    if os.environ.get("HEADSTART_KERNELS") != "reference":
        yield
        return
    monkeypatch.delenv("HEADSTART_KERNELS")
    native.default_backend.cache_clear()
    yield
    native.default_backend.cache_clear()
