"""Recognition of speech and the encoders of models on a GPU: a process of its own, which writes a
line of JSON for all that it has measured.

Recognition: what a chunk of half a second takes a Whisper in fp16 on the device, for one session or
for several in one pass, beside the packed weights on this CPU. First it is compared with the exact
ones. Encoders: a pass kernel by kernel, and recorded as a CUDA graph. All weights are random: what
they take is what they cost.

`python -m headstart.benchmarks.gpu.perception --device cuda --out FILE`
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.benchmarks import report
from headstart.benchmarks.gpu.people import CHUNK_MS, PICTURE_PX
from headstart.benchmarks.gpu.stages import INCOMPLETE, Lines, add_limit, end_in, left_of
from headstart.engine.asr.chunk_timing import ChunkTimer
from headstart.engine.asr.whisper.caches import EncodedSound
from headstart.engine.asr.whisper.checkpoint import Checkpoint, build
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import WhisperEncoder
from headstart.engine.asr.whisper.prepared import MadeAnew
from headstart.engine.asr.whisper.settings import Extras, WhisperSettings
from headstart.engine.asr.whisper.source import EMBEDDING, WhisperSource
from headstart.engine.asr.whisper.vocabulary import Vocabulary
from headstart.engine.config import EngineConfig
from headstart.engine.device.place import Place, on_cpu
from headstart.engine.device.recorded import (
    CudaRecorder,
    PlainRecorder,
    RecordedPasses,
    Recorder,
)
from headstart.engine.device.whisper import placed, whisper_place
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.families import Loading
from headstart.engine.models.perception.passes import launched
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from headstart.engine.models.qwen2_vl import Qwen2Vl
from headstart.engine.models.source import source_of
from headstart.kernels.native import set_threads

WHISPERS = {
    "tiny.en": WhisperSettings(80, 384, 6, 1536, 4, 4, 51_864),
    "base": WhisperSettings(80, 512, 8, 2048, 6, 6, 51_865),
    "small": WhisperSettings(80, 768, 12, 3072, 12, 12, 51_865),
}
TINY_WHISPER = WhisperSettings(80, 64, 2, 96, 2, 2, 300)
"""For trying this on a CPU."""
TOGETHER = (1, 8, 32)
SIZES = ("3b", "qwen2-vl-7b")
"""Whose encoders are measured; 7B has those of 3B."""
MOST_ERROR = 0.02
"""Of the encoder's rows in fp16, as a share of their size; of a pass that is recorded too."""
REPEATS = 15
PATIENT_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Case:
    """One pass of an encoder."""

    name: str
    run: Callable[[], Tensor]


def plan() -> dict[str, Any]:
    """What would be measured, with sizes in bytes on the device."""
    return {
        "recognition": [
            {"whisper": name, "weights_bytes": 2 * weights_of(sizes), "together": list(TOGETHER)}
            for name, sizes in WHISPERS.items()
        ],
        "encoders": [{"model": name, "passes": list(_passes(name))} for name in SIZES],
    }


def weights_of(sizes: WhisperSettings) -> int:
    """Number of weights, from shapes alone."""
    with torch.device("meta"):
        parts = WhisperEncoder(sizes), WhisperDecoder(sizes, Vocabulary())
    layers: int = sum(tensor.numel() for part in parts for tensor in part.state_dict().values())
    return layers + sizes.vocabulary * sizes.width


def random_whisper(sizes: WhisperSettings, *, exact: bool) -> Checkpoint:
    """Packed, or all in fp32; of the same numbers."""
    with torch.device("meta"):
        parts = WhisperEncoder(sizes), WhisperDecoder(sizes, Vocabulary())
    shapes = {
        f"{part}.{name}": tuple(tensor.shape)
        for part, module in zip(("encoder", "decoder"), parts, strict=True)
        for name, tensor in module.state_dict().items()
    }
    shapes[EMBEDDING] = sizes.vocabulary, sizes.width
    made = RandomTensors(torch.float32)
    source = WhisperSource(
        Path("random"), sizes, Extras(), lambda name: made.take(name, *shapes[name]), None
    )
    return build(source, exact, MadeAnew())


def recognition(device: str, until_s: float, lines: Lines) -> bool:
    """A line for each Whisper and number of sessions. Whether all was right and reached."""
    whole = True
    whispers = {"tiny sizes": TINY_WHISPER} if device == "cpu" else WHISPERS
    for name, sizes in whispers.items():
        if time.monotonic() > until_s:
            lines.add({"recognition": name, "error": "not reached"})
            whole = False
            continue
        row: dict[str, Any] = {"recognition": name}
        try:
            exact = random_whisper(sizes, exact=True)
            ours = placed(exact, _whisper_place(device))
            row["rows_error"] = round(_rows_error(ours, exact), 5)
            if row["rows_error"] > MOST_ERROR:
                raise ValueError(f"rows differ by {row['rows_error']} of their size")
            del exact
            packed = random_whisper(sizes, exact=False)
            row["cpu_chunk_ms_p50"] = round(ChunkTimer(packed, CHUNK_MS).median_ms(PATIENT_MS), 2)
            for together in TOGETHER:
                timer = ChunkTimer(ours, CHUNK_MS, together=together)
                timer.median_ms(PATIENT_MS)  # compiles, and fills the allocator's pools
                took_ms = timer.median_ms(PATIENT_MS)
                measured = {
                    "together": together,
                    "chunk_ms_p50": round(took_ms, 2),
                    "ratio_to_cpu": round(row["cpu_chunk_ms_p50"] * together / took_ms, 2),
                }
                lines.add(row | measured)
        except (RuntimeError, ValueError) as error:  # of the driver, or out of memory
            lines.add({**row, "error": f"{type(error).__name__}: {str(error)[-400:]}"})
            whole = False
    return whole


def _whisper_place(device: str) -> Place:
    on = torch.device(device)
    return whisper_place(on, torch.float32) if device == "cpu" else whisper_place(on)


@torch.inference_mode()
def _rows_error(ours: Checkpoint, exact: Checkpoint) -> float:
    """Of encoded noise, two sounds of different lengths in a batch, as a share of its size."""
    noise = torch.Generator().manual_seed(0)
    mels = exact.settings.mels
    sounds = [EncodedSound(torch.randn(mels, n, generator=noise) * 0.5) for n in (300, 220)]
    with ours.working():
        found = [rows.cpu().float() for rows, _ in ours.encoder.encode(sounds)]
    wanted = [exact.encoder.encode([sound])[0][0] for sound in sounds]
    return _error(torch.cat(found), torch.cat(wanted))


def _error(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


def _passes(size: str) -> dict[str, int]:
    """Passes of a model's encoders, by name; of sounds with the frames of a window."""
    found = {f"a pair of pictures, {PICTURE_PX[0]} x {PICTURE_PX[1]}": 0}
    return found if size.startswith("qwen2-vl") else {**found, "0.5 s of sound": 50, "2 s": 200}


def cases(model: Qwen2Vl, size: str) -> Iterator[Case]:
    """Each on the model's device, from pixels or a spectrogram on the host."""
    noise = torch.Generator().manual_seed(0)
    for name, frames in _passes(size).items():
        if frames:
            assert isinstance(model, Qwen25Omni)
            mel = torch.randn(1, model.audio_encoder.sizes.mels, frames, generator=noise)
            yield Case(name, partial(model.audio_encoder.encode_windows, mel))
        else:
            tower, sizes = model.vision.tower, model.vision.tower.sizes
            rows, columns = (side // sizes.side_px for side in reversed(PICTURE_PX))
            patches = rows * columns * sizes.merge**2
            values = 3 * sizes.frames * sizes.patch_px**2
            pixels = torch.randn(patches, values, generator=noise)
            yield Case(name, partial(tower.encode, pixels, rows, columns))


def encoders(device: str, until_s: float, lines: Lines) -> bool:
    """A line for each pass. Whether all was right and reached."""
    whole = True
    for size in ("tiny",) if device == "cpu" else SIZES:
        if time.monotonic() > until_s:
            lines.add({"encoder": size, "error": "not reached"})
            whole = False
            continue
        row: dict[str, Any] = {"encoder": size}
        try:
            model = _encoders_of(size, device)
            for case in cases(model, size):
                row = {"encoder": size, "pass": case.name}
                lines.add(row | _timed(case, model, device))
        except (RuntimeError, ValueError) as error:
            lines.add({**row, "error": f"{type(error).__name__}: {str(error)[-400:]}"})
            whole = False
    return whole


def _encoders_of(size: str, device: str) -> Qwen2Vl:
    """A model without a decoder."""
    place = on_cpu() if device == "cpu" else whisper_place(torch.device(device), torch.bfloat16)
    source = source_of(EngineConfig(weights="dummy", size=size, device="cpu"))
    assert source is not None
    how = Loading(
        encoders=place,
        build=lambda *_: None,  # type: ignore[arg-type]
    )
    made = source.load(how)
    assert isinstance(made, Qwen2Vl)
    return made


@torch.inference_mode()
def _timed(case: Case, model: Qwen2Vl, device: str) -> dict[str, Any]:
    """Kernel by kernel, then recorded. Raises ValueError where these differ, or RuntimeError."""
    plain = case.run().cpu().float()
    launched_ms = _median_ms(case.run, device)
    recorder: Recorder = PlainRecorder()
    if device != "cpu":
        recorder = CudaRecorder(torch.device(device))
    passes = RecordedPasses(recorder)
    model.use_passes(passes)
    try:
        recorded_ms = _median_ms(case.run, device)
        error = _error(case.run().cpu().float(), plain)
    finally:
        model.vision.tower.passes = launched
        if isinstance(model, Qwen25Omni):
            model.audio_encoder.passes = launched
    if passes.failure is not None:
        raise RuntimeError(f"not recorded: {passes.failure}")
    if error > MOST_ERROR:
        raise ValueError(f"recorded it differs by {error:.4f} of its size")
    return {
        "launched_ms_p50": round(launched_ms, 3),
        "recorded_ms_p50": round(recorded_ms, 3),
        "ratio": round(launched_ms / recorded_ms, 2),
        "recorded_error": round(error, 5),
    }


def _median_ms(function: Callable[[], object], device: str) -> float:
    """Until all is computed, behind a few runs to warm up."""
    took_ms = []
    for number in range(REPEATS + 3):
        began_s = time.perf_counter()
        function()
        if device != "cpu":
            torch.cuda.synchronize(device)
        if number >= 3:
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(took_ms)


def main() -> None:
    """A stage's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    add_limit(parser, 40.0)
    options = parser.parse_args()
    limit_s = left_of(options)
    end_in(limit_s)
    torch.set_num_threads(1)
    set_threads(EngineConfig().threads)
    if options.device != "cpu":
        torch.cuda.set_device(torch.device(options.device).index or 0)
    until_s, lines = time.monotonic() + 0.9 * limit_s, Lines(options.out)
    # Encoders first: graphs are what has never been recorded.
    whole = encoders(options.device, until_s, lines)
    whole = recognition(options.device, until_s, lines) and whole
    report.say(f"perception: {'all' if whole else 'not all'} measured")
    raise SystemExit(0 if whole else INCOMPLETE)


if __name__ == "__main__":
    main()
