"""headstart.benchmarks.references.kept_offline: no sound is heard twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.benchmarks.references import kept_offline
from headstart.benchmarks.references.kept_offline import KeptOffline

SOUND = np.zeros(1600, np.float32)


class Counting:
    """Instead of Whisper: the text says how many sounds were heard."""

    heard = 0

    def __init__(self, directory: Path, language: str) -> None:
        pass

    def transcribe(self, sound: object) -> str:
        Counting.heard += 1
        return f"sound {Counting.heard}"


@pytest.fixture(name="weights")
def _weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_offline, "Offline", Counting)
    monkeypatch.setattr(Counting, "heard", 0)
    (folder := tmp_path / "weights").mkdir()
    (folder / "model.bin").write_bytes(b"one")
    return folder


def test_a_sound_is_heard_once(weights: Path, tmp_path: Path) -> None:
    """By another run as well; another sound, or another language, is heard anew."""
    kept = tmp_path / "clips" / "offline.jsonl"
    first = KeptOffline(kept, weights, "en")
    assert first.transcribe(SOUND) == first.transcribe(SOUND) == "sound 1"
    assert KeptOffline(kept, weights, "en").transcribe(SOUND) == "sound 1"
    assert KeptOffline(kept, weights, "en").transcribe(SOUND + 1) == "sound 2"
    assert KeptOffline(kept, weights, "fr").transcribe(SOUND) == "sound 3"


def test_other_weights_hear_anew(weights: Path, tmp_path: Path) -> None:
    """Under the same name as well."""
    kept = tmp_path / "offline.jsonl"
    KeptOffline(kept, weights, "en").transcribe(SOUND)
    (weights / "model.bin").write_bytes(b"two")
    assert KeptOffline(kept, weights, "en").transcribe(SOUND) == "sound 2"


def test_a_line_cut_off_is_heard_again(weights: Path, tmp_path: Path) -> None:
    """The lines before it stay."""
    kept = tmp_path / "offline.jsonl"
    KeptOffline(kept, weights, "en").transcribe(SOUND)
    whole = kept.read_text()
    kept.write_text(whole + '{"sound": "ab')
    again = KeptOffline(kept, weights, "en")
    assert again.transcribe(SOUND) == "sound 1"
    assert kept.read_text() == whole
