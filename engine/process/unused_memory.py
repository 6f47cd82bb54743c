"""Memory that loading leaves behind, given back to the system: free pages of the C library's heap,
and pages of libraries that were only needed to load them."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

_M_ARENA_MAX = -8  # malloc.h of glibc
_ARENAS = 2
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-(?:-|x)p [0-9a-f]+ \S+ [1-9]\d* +(/.*\.so\S*)")


def limit_arenas() -> None:
    """Let threads share arenas: each of glibc's own keeps what was freed in it. To be called before
    there are threads. Other C libraries have nothing to limit."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Give back what can be had again. To be called before a warm-up, which brings back the pages
    that are in use. Elsewhere than on Linux it does nothing."""
    if sys.platform != "linux":
        return
    trim_heap()
    library = ctypes.CDLL(None)
    with suppress(OSError):
        for begin, end in library_pages():
            library.madvise(
                ctypes.c_void_p(begin),
                ctypes.c_size_t(end - begin),
                ctypes.c_int(mmap.MADV_DONTNEED),
            )


def trim_heap() -> None:
    """Give back free pages of the heap. Temporary copies made by loading were freed there."""
    with suppress(AttributeError, OSError):  # glibc alone keeps such pages
        ctypes.CDLL(None).malloc_trim(0)


def library_pages() -> Iterator[tuple[int, int]]:
    """Addresses of mapped libraries' code and constants that are as in their files, so that a page
    dropped here is read again when it is touched, as a rule from the page cache.

    PyTorch links CUDA's libraries, whose start touches 130 MB that a CPU never needs again. Raises
    `OSError` if the system does not tell.
    """
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
        yield from unwritten(lines)


def unwritten(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """`library_pages` of `lines` in the form of /proc/PID/smaps. A page that was written to, such
    as a relocated one, is anonymous memory or swapped out, and would be lost."""
    pages: tuple[int, int] | None = None
    for line in lines:
        if line[0] in "0123456789abcdef":  # names of values begin with a capital
            if pages is not None:
                yield pages
            found = _MAPPING.match(line)
            pages = (int(found[1], 16), int(found[2], 16)) if found else None
        elif line.startswith(("Anonymous:", "Swap:")) and line.split()[1] != "0":
            pages = None
    if pages is not None:
        yield pages
