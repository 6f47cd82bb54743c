"""What was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Blocks below glibc's threshold for mapping lie in the heap. The last one keeps its end in use, so
# that freeing alone gives nothing back.
SCRIPT = """
import psutil
from headstart.engine.process.heap import give_back, limit_arenas
limit_arenas()
blocks = [bytearray(64 << 10) for _ in range(2000)]
last = blocks.pop()
grown = psutil.Process().memory_info().rss
del blocks
give_back()
print(grown - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc's heap")
def test_freed_memory_goes_back() -> None:
    """Of 125 MiB, most."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 100 << 20
