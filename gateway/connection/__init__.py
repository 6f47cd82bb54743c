"""Between a transport and a session: one client's connection, and what happens when it breaks.

`runner` carries a session's actions out and feeds it events, `outbound` is the bounded queue to the
client, `flow_control` holds the client back while the engine is behind, `resume` moves a session
from one connection to the next, `registry` finds it by its token. `interfaces` says what these need
of sessions and transports.

May import: `audio`, `engine.api`, `protocol`, `runtime`, `session`, `telemetry`, `tts`,
`video`.
Never: knows which transport it runs on, or what an event means.
"""
