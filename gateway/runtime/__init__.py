"""Process infrastructure: worker threads, a shared timer, each session's share of the event loop,
monotonic clocks, and supervised child processes.

May import: `errors`.
Never: knows of sessions, audio or the protocol.

"""
