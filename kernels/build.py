"""`python -m headstart.kernels.build`: compile the native kernels now rather than on first use."""

from __future__ import annotations

import os
import sys
import time

from headstart.kernels.errors import CompilerError
from headstart.kernels.native import build, find_compiler


def main() -> int:
    """Build; 0 if the kernels are ready or not wanted, 1 with the compiler's message otherwise."""
    started_s = time.perf_counter()
    try:
        said = "for half a minute, unless that was done before ..."
        print(f"kernels: compiling with {find_compiler()}, {said}", flush=True)
        path, compiled = build()
    except CompilerError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 0 if os.environ.get("HEADSTART_KERNELS") == "reference" else 1
    took = f"compiled in {time.perf_counter() - started_s:.1f} s" if compiled else "ready already"
    print(f"kernels: {took}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
