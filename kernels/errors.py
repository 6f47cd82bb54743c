"""The kernels' errors, without torch.

    KernelError
    +-- KernelSetupError     the kernels that are asked for cannot be had      (operator)
    |   +-- BackendError       HEADSTART_KERNELS or backend= has an unknown value
    |   +-- LevelError         a level that this processor has not
    |   +-- CompilerError      no C compiler, or it failed, or its output cannot be loaded
    +-- KernelMemoryError    no memory for what a kernel computes              (load)
    +-- KernelInputError     a tensor of the wrong type, shape or device       (us)

The engine ends with the sentence of the first, reports the second to the sessions of a pass of the
recogniser as `engine.errors.KernelFailed`, and lets all others end it with a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class KernelError(Exception):
    """Base of all errors of kernels."""


class KernelSetupError(KernelError):
    """Kernels cannot be built, loaded or selected as asked."""


class BackendError(KernelSetupError, ValueError):
    """An unknown backend name; `known`: those that there are."""

    def __init__(self, name: str, source: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"{source} is {name!r}: expected one of {', '.join(known)}")


class LevelError(KernelSetupError, ValueError):
    """A level of instructions that the processor lacks; `have`: those it has."""

    def __init__(self, name: str, compiler: str, have: Sequence[str]) -> None:
        self.name, self.have = name, tuple(have)
        super().__init__(
            f"kernels of level {name}: this processor has {', '.join(have)}, as {compiler} sees it"
        )


class CompilerError(KernelSetupError, RuntimeError):
    """The native kernels could not be built or loaded; `detail` is the cause."""

    def __init__(self, summary: str, detail: str = "") -> None:
        self.detail = detail
        super().__init__(f"{summary}\n{detail}".rstrip())


class KernelMemoryError(KernelError, MemoryError):
    """The system gives no memory for what a kernel computes; `purpose`: what that is."""

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        super().__init__(f"out of memory for {purpose}")


class KernelInputError(KernelError, ValueError):
    """A tensor that an operation does not accept."""
