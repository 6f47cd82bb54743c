"""ONNX nets on one core, with the same result whatever else runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.engine.errors import BadWeights

Net = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def load_net(path: Path) -> Net:
    """The net at `path`, of one input and one output, fp32. Raises `BadWeights`."""
    return _net(_session(path))


def load_net_with_characters(path: Path) -> tuple[Net, list[str]]:
    """A net, and the characters of its output that its file lists. Raises `BadWeights`."""
    session = _session(path)
    listed = session.get_modelmeta().custom_metadata_map.get("character")
    if not listed:
        raise BadWeights(path, "metadata", "a list of characters", "none")
    return _net(session), listed.splitlines()


def _session(path: Path) -> Any:
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    # One core: the others are the decoder's. Sums over threads would also differ by their number.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    # Pictures differ in size, and the arena would keep the most that any of them needed.
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no common base
        expected = "an ONNX model"
        raise BadWeights(path, "content", expected, str(error).splitlines()[0]) from error


def _net(session: Any) -> Net:
    name = session.get_inputs()[0].name

    def run(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.asarray(session.run(None, {name: x})[0], np.float32)

    return run
