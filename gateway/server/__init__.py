"""The server process: settings in, a listening server out. HTTP routes, the WebSocket endpoint, the
accept loop with its limits, and the order of startup and shutdown.

`main` starts the processes, which `supervision` keeps running, and imports `assemble` meanwhile,
which builds the gateway. `app` is the ASGI application with its `Gateway`. `handshake` checks a
client's URL and headers. `elsewhere` answers at addresses where nothing is. `accept` bounds
connections without a session.

May import: `audio`, `auth`, `config`, `connection`, `dashboard`, `engine.api`, `engine_link`,
`engines`, `errors`, `protocol`, `runtime`, `session`, `settings`, `telemetry`, `tracing`,
`transport`, `transport.webrtc`, `transport.websocket`, `tts`, `video`.
Never: decides what a session answers. `headstart.gateway.session` does.
"""
