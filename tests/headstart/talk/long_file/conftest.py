"""A recording that tests of several files ask about."""

from pathlib import Path

import pytest

from tests.headstart.talk.long_file.video_files import BLUE, GREEN, RED, changing, write_video
from tests.headstart.talk.media_files import tone


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """12 s of three colours and a tone."""
    return write_video(
        tmp_path / "film.mkv", changing(12, RED, GREEN, BLUE), pcm=tone(12.0, 24_000)[0]
    )
