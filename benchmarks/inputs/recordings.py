"""Loading of recordings in any format that PyAV opens, whole and mono."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

CLIPS = Path(str(resources.files("headstart") / "clips"))
"""The bundled recordings."""


def load_s16(path: Path, rate_hz: int) -> npt.NDArray[np.int16]:
    """int16[n] at `rate_hz`."""
    return _load(path, rate_hz, "s16").astype(np.int16, copy=False)


def load_f32(path: Path, rate_hz: int) -> npt.NDArray[np.float32]:
    """float32[n] at `rate_hz`, full scale ±1."""
    return _load(path, rate_hz, "flt").astype(np.float32, copy=False)


def _load(path: Path, rate_hz: int, form: str) -> npt.NDArray[np.generic]:
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format=form, layout="mono", rate=rate_hz)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def read_list(path: Path) -> list[tuple[Path, str]]:
    """Lines `path TAB text`; paths are relative to the list's folder."""
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        name, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise ValueError(f"{path}:{number}: expected a path, a tab and a text, got {line!r}")
        lines.append((path.parent / name, text.strip()))
    if not lines:
        raise ValueError(f"{path}: expected lines with a path, a tab and a text, found none")
    return lines
