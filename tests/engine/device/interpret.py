"""`python -m tests.engine.device.interpret KIND`: a tiny model's decoder on the Triton kernels, in
the interpreter, beside the same decoder in plain torch.

A process of its own, because Triton decides on import whether it interprets.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.device.place import Place
from headstart.engine.device.triton_operations import TritonOperations
from headstart.engine.device.weights import GgufSource, load
from headstart.engine.process.load import LoadedModel
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Plan, Work
from tests.engine.harness import load_tiny
from tests.engine.tiny_gguf import TinyConfig, write_tiny_gguf

CONFIG = TinyConfig(layers=1, quantisation="Q8_0")
# In fp32 the two differ by the order of sums; K and V in fp16 round the queries too.
BOUNDS = {"fp32": 1e-5, "int8": 1e-4, "fp16": 1e-2}


def on_triton(plain: LoadedModel, path: Path) -> LoadedModel:
    """The same model and an empty cache of its own, by kernels."""
    place = Place(torch.device("cpu"), torch.float32, TritonOperations())
    source = GgufSource(GgufFile(path), plain.spec, place)
    decoder = DeviceDecoder(plain.spec, load(source, plain.spec, place), place)
    return replace(plain, decoder=decoder, runner=Runner(decoder, plain.cache))


def main() -> None:
    """A chunk, then a chunk of another stream beside the first's decode row, then both decode."""
    kind = sys.argv[1]
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    path = write_tiny_gguf(folder / "tiny.gguf", CONFIG)
    plain = load_tiny(folder, CONFIG, "device", kv_dtype=kind)
    models = plain, on_triton(load_tiny(folder, CONFIG, "device", kv_dtype=kind), path)
    pairs = []
    for model in models:
        model.cache.fill(float("nan"))
        pairs.append([model.new_stream(name) for name in "ab"])
    for counts in ((9, 0), (1, 6), (1, 1), (1, 1)):
        rows = []
        for model, streams in zip(models, pairs, strict=True):
            works = []
            for stream, count in zip(streams, counts, strict=True):
                stream.append([(7 * len(stream) + i) % 200 for i in range(count)])
                works += [Work(stream, count, True, 0)] if count else []
            logits = model.runner.step(Plan(tuple(works))).logits
            rows.append(torch.stack([logits[work.stream] for work in works]))
        error = float((rows[0] - rows[1]).abs().max() / rows[0].abs().max())
        print(counts, error, flush=True)
        assert error < BOUNDS[kind], error
        assert torch.equal(rows[0].argmax(dim=1), rows[1].argmax(dim=1))
    print(f"passed {kind}", flush=True)


if __name__ == "__main__":
    main()
