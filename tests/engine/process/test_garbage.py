"""Garbage is not collected while an engine loads, and is from then on, whatever process it is."""

from __future__ import annotations

import subprocess
import sys


def run(*lines: str) -> list[str]:
    """The lines that a fresh process prints."""
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_what_loading_left_behind_is_not_kept() -> None:
    """Also what refers to itself, as nothing looks for it later."""
    assert run(
        "import gc, weakref",
        "from headstart.engine import __main__ as entry",
        "gc.disable()",
        "class Node: pass",
        "node = Node()",
        "node.itself, told = node, weakref.ref(node)",
        "del node",
        "entry._collect_again()",
        "print(told(), gc.isenabled(), gc.get_freeze_count() > 0)",
    ) == ["None True True"]


def test_an_encoder_process_collects_once_it_has_loaded() -> None:
    """It serves for as long as an engine does."""
    assert run(
        "import gc, sys",
        "from types import SimpleNamespace",
        "from headstart.engine import __main__ as entry",
        "from headstart.engine.process import encoder_process",
        "def serve(config, endpoint, keys, made):",
        "    print(gc.isenabled())",
        "    made(SimpleNamespace(stopping=False))",
        "    print(gc.isenabled())",
        "    return True",
        "encoder_process.serve_encoder = serve",
        "sys.argv[1:] = ['--serve-encoder', 'ipc://nowhere', '--model', 'nowhere']",
        "entry.main()",
    ) == ["False", "True"]
