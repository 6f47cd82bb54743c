"""The levels of instructions that tests run one by one: all that this processor has.

They are compiled when the tests are collected, because a test's time limit is not for the compiler.
`pytest` names them, and those it cannot run here, in its header (tests/conftest.py).
"""

from __future__ import annotations

from headstart.kernels import levels, native

LEVELS = levels.here(native.find_compiler())
for name in LEVELS:
    native.build(name)
