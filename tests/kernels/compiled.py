"""The levels of instructions that tests run one by one: all that this processor has.

`pytest` names them, and those it cannot run here, in its header (tests/conftest.py).
"""

from __future__ import annotations

from headstart.kernels import levels, native

LEVELS = levels.here(native.find_compiler())
