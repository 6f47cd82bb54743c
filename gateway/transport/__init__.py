"""The two ways in: WebSockets and WebRTC. Each makes a channel that a `SessionRunner` reads and
writes.

Here itself is what both stand on, and the server too: `uvicorn_hooks` and `websockets_hooks`, which
alone reach into the private parts of those libraries.

May import: nothing of ours.
Never: looks into an event beyond what framing needs.
"""
