"""headstart.engine.checkpoints.gguf_types: the `gguf` package's tables, without the package."""

from __future__ import annotations

import struct

from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFValueType,
)

from headstart.engine.checkpoints.gguf_types import (
    ARRAY,
    DEFAULT_ALIGNMENT,
    QUANTISATIONS,
    SCALARS,
    STRING,
    Quantisation,
)


def test_quantisations_are_those_of_the_package() -> None:
    """All that it knows, with names and sizes of blocks."""
    theirs = {
        kind.value: Quantisation(kind.name, *GGML_QUANT_SIZES[kind])
        for kind in GGMLQuantizationType
    }
    assert theirs == QUANTISATIONS


def test_value_types_are_those_of_the_package() -> None:
    """Each number has the code of its own size and sign."""
    assert {STRING, ARRAY, *SCALARS} == {kind.value for kind in GGUFValueType}
    assert (STRING, ARRAY) == (GGUFValueType.STRING, GGUFValueType.ARRAY)
    assert DEFAULT_ALIGNMENT == GGUF_DEFAULT_ALIGNMENT
    for number, code in SCALARS.items():
        name = GGUFValueType(number).name
        if name == "BOOL":
            assert code == "?"
            continue
        kind = "f" if name.startswith("FLOAT") else "u" if name.startswith("U") else "i"
        bits = int("".join(filter(str.isdigit, name)))
        assert struct.calcsize(f"<{code}") * 8 == bits
        assert (code in "fd", code.isupper()) == (kind == "f", kind == "u")
