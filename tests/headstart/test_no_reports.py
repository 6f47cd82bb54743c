"""No library reports to its vendor what the machine is and what runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

VARIABLE = "ORT_DISABLE_TELEMETRY"
SILENCED_ALREADY = (VARIABLE, "ORT_RUNNING_UNIT_TESTS", "CI", "GITHUB_ACTIONS")
"""ONNX Runtime keeps still where one of these is set."""
VOICE = "from headstart.gateway.tts.kept_halves import session; session(Path('net.onnx'))"
READER = "from headstart.engine.vision.reading.onnx import load_net; load_net(Path('net.onnx'))"


def network(path: Path) -> None:
    """An ONNX model that returns what it is given."""
    given, result = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"
    )
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [given], [result])
    opset = onnx.helper.make_opsetid("", 17)
    path.write_bytes(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    )


@pytest.mark.parametrize("load", [VOICE, READER], ids=["voice", "reader"])
def test_onnx_runtime_reports_nothing(load: str, tmp_path: Path) -> None:
    """Whoever loads a net leaves no device number and no list of events to be sent."""
    network(tmp_path / "net.onnx")
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in SILENCED_ALREADY}
    kept.pop("XDG_CACHE_HOME", None)
    subprocess.run(
        [sys.executable, "-c", f"from pathlib import Path; {load}"],
        cwd=tmp_path,
        env=kept | {"HOME": str(home)},
        check=True,
        timeout=120,
    )
    assert [path.name for path in home.rglob("*") if path.is_file()] == []


def test_a_user_may_have_it_report() -> None:
    """Who sets the variable is obeyed."""
    line = f"import os, headstart; print(os.environ[{VARIABLE!r}])"
    done = subprocess.run(
        [sys.executable, "-c", line],
        env={**os.environ, VARIABLE: "0"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "0\n"
