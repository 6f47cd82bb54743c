"""The bundled clips of `headstart demo`, the tests and the benchmarks, and the script that made
them.

May import: nothing of ours.
Never: is needed by a running server.

"""
