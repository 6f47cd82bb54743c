"""What an engine in a test leaves behind is put in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels.native import set_threads


@pytest.fixture(scope="module", autouse=True)
def threads_as_before() -> Iterator[None]:
    """An engine takes the kernels' threads from torch; whoever comes next expects torch's."""
    yield
    set_threads(None)
