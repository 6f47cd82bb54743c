"""The process: command-line settings in, a listening server out. HTTP routes, the WebSocket
endpoint, the accept loop with its limits, and the order in which everything starts and stops.

`main` puts the processes together, `app` is the ASGI application with its `Gateway`, `handshake`
checks what a client asks for by its address, `accept` bounds connections that have not begun.

May import: `audio`, `auth`, `config`, `connection`, `dashboard`, `engine.api`, `engine_link`,
`errors`, `protocol`, `runtime`, `session`, `telemetry`, `tracing`, `transport`,
`transport.webrtc`, `transport.websocket`, `tts`, `video`.
Never: decides what a session answers. That is `headstart.gateway.session`'s.
"""
