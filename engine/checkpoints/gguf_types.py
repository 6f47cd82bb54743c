"""The value types and quantisations of GGUF files, by number.

From the GGUF specification (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) and ggml's
block layouts. The `gguf` package has the same tables, and a test compares them; importing it reads
a YAML parser, a progress bar and its writers.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_ALIGNMENT = 32

STRING, ARRAY = 8, 9
SCALARS = {
    0: "B",  # UINT8
    1: "b",
    2: "H",  # UINT16
    3: "h",
    4: "I",  # UINT32
    5: "i",
    6: "f",  # FLOAT32
    7: "?",  # BOOL
    10: "Q",  # UINT64
    11: "q",
    12: "d",  # FLOAT64
}
"""Codes of `struct` by the number of a value's type."""


class Quantisation(NamedTuple):
    """How a tensor's weights are stored: `block_cols` of a row in `block_bytes` bytes."""

    name: str
    block_cols: int
    block_bytes: int


QUANTISATIONS = {
    0: Quantisation("F32", 1, 4),
    1: Quantisation("F16", 1, 2),
    2: Quantisation("Q4_0", 32, 18),
    3: Quantisation("Q4_1", 32, 20),
    6: Quantisation("Q5_0", 32, 22),
    7: Quantisation("Q5_1", 32, 24),
    8: Quantisation("Q8_0", 32, 34),
    9: Quantisation("Q8_1", 32, 40),
    10: Quantisation("Q2_K", 256, 84),
    11: Quantisation("Q3_K", 256, 110),
    12: Quantisation("Q4_K", 256, 144),
    13: Quantisation("Q5_K", 256, 176),
    14: Quantisation("Q6_K", 256, 210),
    15: Quantisation("Q8_K", 256, 292),
    16: Quantisation("IQ2_XXS", 256, 66),
    17: Quantisation("IQ2_XS", 256, 74),
    18: Quantisation("IQ3_XXS", 256, 98),
    19: Quantisation("IQ1_S", 256, 50),
    20: Quantisation("IQ4_NL", 32, 18),
    21: Quantisation("IQ3_S", 256, 110),
    22: Quantisation("IQ2_S", 256, 82),
    23: Quantisation("IQ4_XS", 256, 136),
    24: Quantisation("I8", 1, 1),
    25: Quantisation("I16", 1, 2),
    26: Quantisation("I32", 1, 4),
    27: Quantisation("I64", 1, 8),
    28: Quantisation("F64", 1, 8),
    29: Quantisation("IQ1_M", 256, 56),
    30: Quantisation("BF16", 1, 2),
    34: Quantisation("TQ1_0", 256, 54),
    35: Quantisation("TQ2_0", 256, 66),
    39: Quantisation("MXFP4", 32, 17),
    40: Quantisation("NVFP4", 64, 36),
    41: Quantisation("Q1_0", 128, 18),
}
"""By the number of a tensor's type."""
