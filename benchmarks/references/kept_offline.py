"""Offline Whisper that hears no sound twice: what it made of one is kept in a file.

A line for each sound: `sound`, the SHA-256 of the weights, the language and the samples, and
`text`. So other weights or another sound are another line.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headstart.benchmarks.references.offline import Offline


class KeptOffline:
    """`Offline` behind the file `kept`, which need not exist. Its model is loaded when needed.

    A last line that was not written to its end is dropped.
    """

    def __init__(self, kept: Path, directory: Path, language: str) -> None:
        self._kept, self._directory, self._language = kept, directory, language
        self._texts: dict[str, str] = {}
        if kept.exists():
            whole, _, cut_off = kept.read_text().rpartition("\n")
            if cut_off:
                kept.write_text(whole + "\n" if whole else "")
            for line in whole.splitlines():
                note = json.loads(line)
                self._texts[note["sound"]] = note["text"]

    def transcribe(self, sound: npt.NDArray[np.float32]) -> str:
        """fp32 16 kHz mono [samples] to text."""
        digest = self._weights.copy()
        digest.update(sound.tobytes())
        if (name := digest.hexdigest()) not in self._texts:
            self._texts[name] = self._offline.transcribe(sound)
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with self._kept.open("a") as file:
                file.write(json.dumps({"sound": name, "text": self._texts[name]}) + "\n")
        return self._texts[name]

    @cached_property
    def _offline(self) -> Offline:
        return Offline(self._directory, self._language)

    @cached_property
    def _weights(self) -> hashlib._Hash:
        digest = hashlib.sha256(self._language.encode())
        for path in sorted(path for path in self._directory.iterdir() if path.is_file()):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest
