"""`pytest -p tests.no_triton`: as on a machine without Triton."""

import sys

sys.modules["triton"] = None  # type: ignore[assignment]
