"""`python -m kernels.build`: compile every native kernel now rather than on first use."""

from __future__ import annotations

import sys
import time

from kernels.native import OPERATIONS, CompilerError, build, cache_dir, find_compiler


def main() -> int:
    """Build all; 0 when every kernel is ready, 1 with the compiler's words otherwise."""
    try:
        print(f"kernels: {find_compiler()} -> {cache_dir()}", flush=True)
        for name in OPERATIONS:
            started_s = time.perf_counter()
            path, compiled = build(name)
            took = f"compiled in {time.perf_counter() - started_s:.1f} s" if compiled else "ready"
            print(f"  {name:<16} {took:<20} {path.name}", flush=True)
    except CompilerError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
