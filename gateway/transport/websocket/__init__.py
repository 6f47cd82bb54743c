"""WebSocket connections: the server's protocol class and one socket as a channel.

`channel` holds both, `inbox` is what a peer has sent and its session has not read yet, `fast_frame`
reads the frame that is nearly all of them, a small text, without the general parser.

May import: `connection`, `runtime`, `session`, `transport`.
Never: blocks the loop or queues without a bound.
"""
