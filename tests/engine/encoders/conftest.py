"""Where the encoder process of a test is."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A socket of the test's own."""
    return f"ipc://{tmp_path / 'encoder.sock'}"
