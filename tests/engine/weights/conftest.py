"""Each test has its own home and its own shelf of wheels, and no hub but one on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.weights.helpers import Shelf, write_shelf


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 9 (discard) refuses at once: a test that reaches for the hub gets an error, no net."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HEADSTART_WEIGHTS_FOLDER", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(write_shelf(tmp_path / "shelf"))
