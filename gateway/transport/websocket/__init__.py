"""WebSocket connections: the server's protocol class, and one socket as a channel.

`channel` holds both. `inbox` queues received messages that the session has not read yet.
`fast_frame` parses the most frequent frame, a small text, without the general parser.

May import: `connection`, `runtime`, `session`, `transport`.
Never: blocks the loop or queues without a bound.

"""
