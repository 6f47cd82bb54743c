"""What an engine in a test leaves behind is put in order."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from headstart.kernels import native


@pytest.fixture(scope="module", autouse=True)
def threads_as_before() -> Iterator[None]:
    """An engine takes the kernels' threads from torch; whoever comes next expects torch's."""
    yield
    native.set_threads(None)


@pytest.fixture
def our_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is said of bits is said of our kernels: such a test runs on them also where
    HEADSTART_KERNELS asks for plain torch, whose products round by the batch's shape."""
    if os.environ.get("HEADSTART_KERNELS") != "reference":
        yield
        return
    monkeypatch.delenv("HEADSTART_KERNELS")
    native.default_backend.cache_clear()
    yield
    native.default_backend.cache_clear()
