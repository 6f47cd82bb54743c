"""The two ways in: WebSockets and WebRTC. Each makes a channel that a `SessionRunner` reads and
writes.

May import: nothing of ours.
Never: looks into an event beyond what framing needs.
"""
