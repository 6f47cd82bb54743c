from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.vision.reading.reader import TextReader


@pytest.fixture(scope="session")
def reader(reading_path: Path) -> TextReader:
    return TextReader.load(reading_path)
