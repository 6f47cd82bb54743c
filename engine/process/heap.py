"""The C library's heap: what loading has freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_M_ARENA_MAX = -8  # malloc.h of glibc
_ARENAS = 2


def limit_arenas() -> None:
    """Let threads share arenas: each of glibc's own keeps what was freed in it. To be called before
    there are threads. Other C libraries have nothing to limit."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return free pages of the heap to the system. Temporary copies made by loading are freed there
    and would stay with the process for good. glibc alone keeps them."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
