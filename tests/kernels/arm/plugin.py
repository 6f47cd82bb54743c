"""pytest's `-p tests.kernels.arm.plugin --arm-processor NAME`: the levels of 64-bit Arm beside this
machine's, so that the kernels' own tests run on both, and compare the bits of both.

`HEADSTART_KERNELS=neon` (and so on) then runs every test that names no level through Arm's code.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from headstart.kernels import levels, native
from tests.kernels.arm import guest

_PROCESSORS = {processor.name: processor for processor in guest.PROCESSORS}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which processor qemu plays."""
    parser.addoption("--arm-processor", choices=tuple(_PROCESSORS), default="max")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add the levels before tests are collected, which ask for them."""
    processor = _PROCESSORS[config.getoption("--arm-processor")]
    added = processor.levels
    native.BACKENDS = (*native.BACKENDS, guest.SCALAR)
    ours, build, load = levels.here, native.build, native._open

    def here(compiler: str) -> tuple[str, ...]:
        """This machine's levels first: the highest is `native`."""
        return (*ours(compiler), *added)

    def build_either(level: str = "native") -> tuple[Path, bool]:
        return (guest.build(level), True) if level in added else build(level)

    def load_either(level: str = "native") -> ctypes.CDLL:
        return guest.library(level, processor) if level in added else load(level)  # type: ignore[return-value]

    levels.here = here  # type: ignore[assignment]
    native.build = build_either
    native._open = load_either


def pytest_unconfigure() -> None:
    """No process is left behind."""
    guest.close_all()
