"""Memory for weights: aligned, apart from each other, alive as long as it is used."""

from __future__ import annotations

import gc

import torch

from headstart.kernels.memory import ALIGNMENT_BYTES, HUGE_PAGE_BYTES, Arena, empty


def test_large_tensors_are_aligned_and_whole() -> None:
    """A large tensor starts on a huge page, is contiguous, and can be written to its end."""
    made = empty((3, 1 << 20), torch.float32)
    assert made.shape == (3, 1 << 20)
    assert made.is_contiguous()
    assert made.data_ptr() % HUGE_PAGE_BYTES == 0
    made.fill_(2.0)
    assert made.sum().item() == 2.0 * made.numel()


def test_small_tensors_take_no_huge_page() -> None:
    """A tensor below a huge page is an ordinary one."""
    assert empty((5,), torch.float16).untyped_storage().nbytes() == 10


def test_pieces_do_not_overlap() -> None:
    """Pieces of an arena start on cache lines and keep what was written to them."""
    arena = Arena(chunk_bytes=1000)
    sizes = [1, 63, 64, 65, 500, 999, 1, 5000, 7]
    pieces = [arena.take(size) for size in sizes]
    for i, piece in enumerate(pieces):
        piece.fill_(i)
    for i, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        assert piece.shape == (size,)
        assert (piece == i).all()
        assert piece.data_ptr() % ALIGNMENT_BYTES == 0


def test_a_piece_outlives_its_arena() -> None:
    """The memory is freed with the last tensor in it, not with the arena."""
    arena = Arena(chunk_bytes=4 << 20)
    piece = arena.take(100).fill_(7)
    del arena
    gc.collect()
    torch.ones(8 << 20)
    assert (piece == 7).all()
