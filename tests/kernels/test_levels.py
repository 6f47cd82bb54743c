"""Which levels a processor of 64-bit Arm has, by what its system says (x86: test_native.py)."""

from __future__ import annotations

import pytest

from headstart.kernels import levels, native
from headstart.kernels.errors import LevelError

HWCAP, HWCAP2 = 16, 26
DOTPROD, I8MM = 1 << 20, 1 << 13


@pytest.mark.parametrize(
    ("hwcap", "hwcap2", "wanted"),
    [
        (0xFF, 0, ("neon", "scalar")),  # Cortex-A53
        (0xFF | DOTPROD, 0, ("dotprod", "neon", "scalar")),  # Cortex-A76
        (0xFF | DOTPROD, I8MM, ("i8mm", "dotprod", "neon", "scalar")),
        (0xFF, I8MM, ("neon", "scalar")),  # nobody has one without the other: then neither
    ],
)
def test_hardware_capabilities_choose(
    hwcap: int, hwcap2: int, wanted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The highest level first, as Linux tells them."""
    told = {HWCAP: hwcap, HWCAP2: hwcap2}
    monkeypatch.setattr(levels, "IS_ARM", True)
    monkeypatch.setattr(levels, "_auxv_features", lambda: levels.hwcap_features(told.__getitem__))
    every = frozenset().union(*(level.needs for level in levels.ARM_LEVELS))
    monkeypatch.setattr(levels, "_macros", lambda *_: set(every))
    levels.here.cache_clear()
    try:
        assert levels.here("cc") == wanted
        assert levels.flags_of("native", "cc")[-1] in levels.flags_of(wanted[0], "cc")
    finally:
        levels.here.cache_clear()


def test_a_compiler_that_is_too_old_has_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not know i8mm refuses its flags, and defines nothing."""
    monkeypatch.setattr(levels, "IS_ARM", True)
    monkeypatch.setattr(levels, "_auxv_features", lambda: frozenset({"dotprod", "i8mm"}))
    known = set(levels.ARM_LEVELS[1].needs)
    monkeypatch.setattr(
        levels, "_macros", lambda _, flags: set() if "i8mm" in " ".join(flags) else known
    )
    levels.here.cache_clear()
    try:
        assert levels.here("cc") == ("dotprod", "neon", "scalar")
    finally:
        levels.here.cache_clear()


@pytest.mark.parametrize("error", [OSError("no libc"), AttributeError("getauxval")])
def test_a_system_that_cannot_be_asked_has_plain_neon(error: Exception) -> None:
    """Slower, and the same bits."""

    def ask() -> frozenset[str]:
        raise error

    assert levels.arm_features(ask) == frozenset()


def test_an_arm_level_elsewhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by name everywhere, run where it is."""
    monkeypatch.setattr(levels, "here", lambda _: ("avx2", "scalar"))
    with pytest.raises(LevelError, match="this processor has avx2, scalar"):
        native.build("neon")
