"""Compiles launches to machine code for chips that are not there, and reads what they take.

Triton's wheel brings what it needs: ptxas and cuobjdump for NVIDIA, LLVM for AMD. Compiled code
lies in Triton's own cache (TRITON_CACHE_DIR), by the kernel's source, sizes and chip.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.compiler import ASTSource  # type: ignore[import-untyped]

from headstart.kernels.gpu.cases import Case, cases
from headstart.kernels.gpu.launch import Argument, Launch

_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}


class NoCompilerError(RuntimeError):
    """Triton interprets (TRITON_INTERPRET=1), or lacks a tool to compile with."""


@dataclass(frozen=True)
class Chip:
    """What a program may take; `shared_bytes` for each, opted in where the vendor asks for that."""

    name: str
    backend: str
    arch: int | str
    lanes: int
    shared_bytes: int


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("sm_80", "cuda", 80, 32, 163 << 10),
        Chip("sm_90", "cuda", 90, 32, 227 << 10),
        Chip("sm_120", "cuda", 120, 32, 99 << 10),
        Chip("gfx942", "hip", "gfx942", 64, 64 << 10),
    )
}
"""CUDA C++ programming guide, technical specifications by compute capability; AMD's CDNA 3 ISA."""


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel takes. `spilled`: registers or bytes kept in memory."""

    registers: int
    spilled: int
    shared_bytes: int
    code_bytes: int


def compile_for(launch: Launch, chip: Chip) -> Resources:
    """Machine code of `launch` for `chip`, as a run with these sizes would compile it.

    Raises NoCompilerError, and Triton's own errors.
    """
    if not isinstance(launch.kernel, triton.runtime.jit.JITFunction):
        raise NoCompilerError("expected a process without TRITON_INTERPRET: it compiles nothing")
    target = GPUTarget(chip.backend, chip.arch, chip.lanes)
    options = {"num_warps": launch.warps(chip.lanes), "num_stages": launch.stages}
    compiled = triton.compile(_source(launch), target=target, options=options)
    if chip.backend == "cuda":
        return _read_cubin(compiled.asm["cubin"], compiled.metadata.shared)
    return _read_amdgcn(compiled.asm["amdgcn"], compiled.asm["hsaco"], compiled.metadata.shared)


def _source(launch: Launch) -> Any:
    """The kernel with its arguments' types, specialised as Triton does at a launch: an integer 1 is
    a constant, and those that 16 divides are known to be."""
    signature, constants, attributes = {}, dict(launch.constants), {}
    for index, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.args[name]
        signature[name] = _type(value)
        if signature[name] == "constexpr":
            constants[name] = value
        elif isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(launch.kernel, signature, constants, attributes)


def _type(value: Argument) -> str:
    if isinstance(value, Tensor):
        return "*" + _TYPES[value.dtype]
    if value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    return "i32" if isinstance(value, int) else "fp32"


def _read_cubin(cubin: bytes, shared_bytes: int) -> Resources:
    """By cuobjdump: STACK and LOCAL are bytes of memory that registers were spilled to."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not tool.exists():
        raise NoCompilerError(f"{tool.name}: expected in Triton's wheel, not there")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", told)}
    return Resources(found["REG"], found["STACK"] + found["LOCAL"], shared_bytes, len(cubin))


def _read_amdgcn(text: str, hsaco: bytes, shared_bytes: int) -> Resources:
    """By the assembly's own notes; accumulation registers are counted among the vector ones.

    Scalar registers that are kept in lanes of vector registers do not count: they reach no memory.
    """

    def note(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        assert found is not None, f"the assembly has no {name}"
        return int(found[1])

    spilled = note("vgpr_spill_count") + note("private_segment_fixed_size")
    return Resources(note("vgpr_count"), spilled, shared_bytes, len(hsaco))


@dataclass(frozen=True)
class Row:
    """One kernel by chip; `name`: its case, and if that has several, which one."""

    name: str
    by_chip: dict[str, Resources]


def compile_cases(chips: Sequence[Chip], chosen: Sequence[Case]) -> Iterator[Row]:
    """Every launch of every case for every chip; one that another case has too comes once."""
    done: set[str] = set()
    for case in chosen:
        for place, launch in enumerate(case.prepare("meta").launches):
            source = _source(launch)
            key = f"{source.hash()} {launch.threads} {launch.stages}"
            if key in done:
                continue
            done.add(key)
            by_chip = {chip.name: compile_for(launch, chip) for chip in chips}
            part = f": {launch.kernel.__name__.strip('_')}" if place else ""
            yield Row(case.name + part, by_chip)


def main() -> None:
    """`python -m headstart.kernels.gpu.compiling [chip ...]`: the table of docs/gpu.md."""
    chips = [CHIPS[name] for name in sys.argv[1:] or CHIPS]
    print("| kernel and size | " + " | ".join(chip.name for chip in chips) + " |")
    print("|---|" + "---|" * len(chips))
    for row in compile_cases(chips, cases()):
        cells = []
        for took in row.by_chip.values():
            spilled = f", **{took.spilled} spilled**" if took.spilled else ""
            cells.append(f"{took.registers} / {took.shared_bytes / 1024:.0f}{spilled}")
        print(f"| {row.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
