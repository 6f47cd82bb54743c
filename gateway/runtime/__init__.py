"""The process's own machinery: threads beside the loop, one timer for many, a fair share of the
loop for each session, clocks that nobody sets, and child processes that are kept alive.

May import: `errors`.
Never: knows of sessions, sound or the protocol.
"""
