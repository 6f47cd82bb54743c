"""The bundled clips that `headstart demo`, the tests and the benchmarks play, and how they were
made.

May import: nothing of ours.
Never: is needed by a running server.
"""
