"""Memory in huge pages, where available, for data that is read once per token.

A decoder reads all its weights for every token. In pages of 4 KiB that is some 100,000 page walks,
and one core reads 7.5 GB/s; in pages of 2 MiB it reads 12.7 GB/s (measured on the machine named in
README.md). Linux usually gives huge pages on request only (`madvise`); elsewhere this is ordinary
memory.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading

import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
# Weights share chunks, so that a small one does not take a huge page alone.
CHUNK_BYTES = 64 << 20
ALIGNMENT_BYTES = 64


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor, aligned to and advised to use huge pages."""
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes < HUGE_PAGE_BYTES:
        return torch.empty(shape, dtype=dtype)
    raw = torch.empty(size_bytes + HUGE_PAGE_BYTES, dtype=torch.uint8)
    skip = -raw.data_ptr() % HUGE_PAGE_BYTES
    _advise(raw.data_ptr() + skip, size_bytes)
    return raw[skip : skip + size_bytes].view(dtype).view(shape)


def _advise(address: int, size_bytes: int) -> None:
    """Ask for huge pages. A refusal costs speed only, so it is not an error."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), ctypes.c_int(advice))


class Arena:
    """Allocates byte tensors contiguously in chunks of huge pages.

    A chunk lives as long as any tensor in it, so this is for tensors with one lifetime, like a
    model's weights. The unused end of the last chunk is address space, not memory.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used_bytes = 0

    def take(self, size_bytes: int) -> Tensor:
        """uint8 [size_bytes], not initialised, aligned to a cache line."""
        if size_bytes >= self._chunk_bytes:
            return empty((size_bytes,), torch.uint8)
        with self._lock:
            if self._used_bytes + size_bytes > len(self._chunk):
                self._chunk = empty((self._chunk_bytes,), torch.uint8)
                self._used_bytes = 0
            taken = self._chunk[self._used_bytes : self._used_bytes + size_bytes]
            self._used_bytes += -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            return taken
