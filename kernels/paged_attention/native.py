"""ctypes glue of the C kernel."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError, KernelMemoryError
from headstart.kernels.native import threads
from headstart.kernels.paged_attention.storage import Narrow, blocks_in

# `storage` of kernels.h.
STORED = {torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.float8_e4m3fn: 3}
_VOID, _INT, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Attention(ctypes.Structure):
    """`Attention` of kernels.h."""

    _fields_ = (
        *((name, _LONG) for name in ("rows", "heads", "kv_heads", "head_dim", "block_size")),
        *((name, _LONG) for name in ("num_blocks", "seqs", "max_blocks")),
        *((name, _VOID) for name in ("q", "k_pool", "v_pool", "tables")),
        *((name, _VOID) for name in ("seq_of_row", "context_of_row", "out")),
        ("scale", ctypes.c_float),
        ("storage", _INT),
        ("threads", _INT),
        ("narrow_storage", _INT),
        ("wide_blocks", _LONG),
        ("narrow_stride", _LONG),
    )


def types_of(k_pool: Tensor, narrow: Narrow | None) -> tuple[int, int, int]:
    """`narrow_storage`, `wide_blocks` and `narrow_stride` of a call."""
    if narrow is None:
        return 0, k_pool.shape[0], 0
    return STORED[narrow.dtype], k_pool.shape[0], narrow.stride_bytes(k_pool)


def declare(library: ctypes.CDLL) -> None:
    """Argument types of kernel.c."""
    library.hs_attention.argtypes = [_VOID]
    library.hs_attention.restype = _LONG
    library.hs_append.argtypes = [_VOID] * 5 + [_LONG] * 5 + [_INT]
    library.hs_append.restype = _LONG
    library.hs_append_mixed.argtypes = [_VOID] * 5
    library.hs_append_mixed.restype = _LONG


def paged_attention(
    library: ctypes.CDLL,
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    tables: Tensor,
    seq_of_row: Tensor,
    context_of_row: Tensor,
    scale: float,
    narrow: Narrow | None = None,
) -> Tensor:
    """Shapes as in the package; every tensor contiguous. Raises KernelInputError."""
    rows, heads, head_dim = q.shape
    _, kv_heads, block_size, _ = k_pool.shape
    num_blocks = blocks_in(k_pool, narrow)
    out = torch.empty((rows, heads, head_dim), dtype=torch.float32)
    call = Attention(
        rows, heads, kv_heads, head_dim, block_size, num_blocks, tables.shape[0], tables.shape[1],
        q.data_ptr(), k_pool.data_ptr(), v_pool.data_ptr(), tables.data_ptr(),
        seq_of_row.data_ptr(), context_of_row.data_ptr(), out.data_ptr(),
        scale, STORED[k_pool.dtype], threads(), *types_of(k_pool, narrow),
    )  # fmt: skip
    status = library.hs_attention(ctypes.addressof(call))
    if status == -2:
        raise KernelMemoryError("the work space of attention")
    if status >= 0:
        raise KernelInputError(
            f"row {status} names a sequence, a context or a block that is not there: sequence "
            f"{int(seq_of_row[status])} of {tables.shape[0]}, context "
            f"{int(context_of_row[status])} of at most {tables.shape[1] * block_size}, blocks 0 .. "
            f"{num_blocks - 1}"
        )
    return out


def append(
    library: ctypes.CDLL,
    k_pool: Tensor,
    v_pool: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    narrow: Narrow | None = None,
    coded: Tensor | None = None,
) -> None:
    """Shapes as in the package; every tensor contiguous. Raises KernelInputError."""
    rows, kv_heads, head_dim = k.shape
    block_size, num_blocks = k_pool.shape[2], blocks_in(k_pool, narrow)
    if narrow is None:
        status = library.hs_append(
            k_pool.data_ptr(), v_pool.data_ptr(), k.data_ptr(), v.data_ptr(), slots.data_ptr(),
            rows, kv_heads, block_size, head_dim, num_blocks, STORED[k_pool.dtype],
        )  # fmt: skip
    else:
        call = Attention(
            rows, kv_heads, kv_heads, head_dim, block_size, num_blocks, 0, 0,
            None, k_pool.data_ptr(), v_pool.data_ptr(), None, None, None, None,
            0.0, STORED[k_pool.dtype], 1, *types_of(k_pool, narrow),
        )  # fmt: skip
        status = library.hs_append_mixed(
            ctypes.addressof(call), k.data_ptr(), v.data_ptr(), slots.data_ptr(),
            None if coded is None else coded.data_ptr(),
        )  # fmt: skip
        if status == -2:
            raise KernelMemoryError("a row of K and V")
    if status >= 0:
        raise KernelInputError(
            f"slots[{status}] is {int(slots[status])}: expected 0 .. {num_blocks * block_size - 1}"
        )
