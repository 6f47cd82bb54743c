"""`python -m headstart.engine.process.weight_path NAME`: the path of a weight, fetched if need be.

As `headstart models path NAME --fetch`, for programs: without a command line's libraries, whose
import takes ten times as long as the look at the folder.
"""

from __future__ import annotations

import sys

from headstart.engine.errors import EngineError
from headstart.engine.weights import ensure


def main() -> None:
    """Print the path and nothing else. What is wrong is one line on stderr, with exit code 1."""
    (name,) = sys.argv[1:]
    try:
        print(ensure(name))
    except (EngineError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
