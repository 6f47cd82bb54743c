"""The two transports, WebSocket and WebRTC. Each makes a channel that a `SessionRunner` reads and
writes.

This folder also holds `uvicorn_hooks` and `websockets_hooks`, which both transports and the server
use. Only they use private parts of those libraries.

May import: nothing of ours.
Never: looks into an event beyond what framing needs.

"""
