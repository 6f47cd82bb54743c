"""Pictures: which of a camera's frames the model gets to see, and decoding away from the event
loop.

`sampling` is sans-I/O and sans-clock, `decode` runs on the threads of `headstart.gateway.runtime`.

May import: `engine.api`, `protocol`, `runtime`.
Never: keeps a frame that the session has not asked for.
"""
