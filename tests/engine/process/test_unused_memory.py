"""Memory that loading leaves behind goes back to the system, and nothing that is in use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headstart.engine.process.unused_memory import unwritten

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="about Linux' memory")

# Blocks below glibc's threshold for mapping lie in the heap. The last one keeps its end in use, so
# that freeing alone gives nothing back.
HEAP = """
import psutil
from headstart.engine.process.unused_memory import give_back, limit_arenas
limit_arenas()
blocks = [bytearray(64 << 10) for _ in range(2000)]
last = blocks.pop()
grown = psutil.Process().memory_info().rss
del blocks
give_back()
print(grown - psutil.Process().memory_info().rss)
"""

# What is computed behind it is what was computed before, with torch's code dropped in between.
LIBRARIES = """
import json
import psutil
import torch
from headstart.engine.process.unused_memory import give_back, library_pages

def computed():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    return (torch.nn.functional.gelu(x @ x).sum() + torch.fft.rfft(x).abs().sum()).item()

before = computed()
pages = list(library_pages())
rss = psutil.Process().memory_info().rss
give_back()
freed = rss - psutil.Process().memory_info().rss
print(json.dumps({"before": before, "pages": pages, "freed": freed, "after": computed()}))
"""


def run(script: str) -> str:
    argv = [sys.executable, "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_freed_memory_goes_back() -> None:
    """Of 125 MiB, most."""
    assert int(run(HEAP)) > 100 << 20


def test_library_code_is_read_again_where_it_is_needed() -> None:
    """The same numbers behind it; mappings are whole pages, one behind the other."""
    found = json.loads(run(LIBRARIES))
    assert found["after"] == found["before"]
    assert found["freed"] > 10 << 20
    assert len(found["pages"]) > 10
    assert all(begin < end and begin % 4096 == end % 4096 == 0 for begin, end in found["pages"])


def mapping(begin: int, rights: str, name: str, **values: int) -> str:
    head = f"{begin:x}-{begin + 0x2000:x} {rights} 00000000 fe:01 4711 {name}"
    named = [f"{key}: {value:15} kB" for key, value in values.items()]
    return "\n".join([head, "Size: 8 kB", *named, "VmFlags: rd mr mw me"])


def test_pages_that_were_written_to_are_kept() -> None:
    """Whether they are in memory or swapped out; the last mapping counts too."""
    text = "\n".join(
        [
            mapping(0x10000, "r-xp", "/lib/a.so.1", Anonymous=0, Swap=0),
            mapping(0x20000, "r--p", "/lib/a.so.1", Anonymous=4, Swap=0),
            mapping(0x30000, "r--p", "/lib/b.so", Anonymous=0, Swap=4),
            mapping(0x40000, "rw-p", "/lib/b.so", Anonymous=0, Swap=0),
            mapping(0x50000, "r-xp", "/bin/python", Anonymous=0, Swap=0),
            mapping(0x60000, "r--p", "/lib/c.so", Anonymous=0, Swap=0),
        ]
    )
    assert list(unwritten(text.splitlines())) == [(0x10000, 0x12000), (0x60000, 0x62000)]
