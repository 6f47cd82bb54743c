"""Process infrastructure: worker threads, a shared timer, each session's share of the event loop,
monotonic clocks, supervised child processes, ZeroMQ sockets on the loop, and imports that leave
packages out.

May import: `errors`, `engine.api`.
Never: knows of sessions, audio or the protocol.

"""
