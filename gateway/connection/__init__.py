"""Between a transport and a session: one client's connection, and what happens when it breaks.

`runner` carries out a session's actions and feeds it events. `outbound` is the bounded queue to the
client. `flow_control` limits what is sent to the engine. `resume` moves a session from one
connection to the next, `registry` finds sessions by token, and `pending` bounds connections without
a session. `interfaces` are the protocols that sessions and transports implement.

May import: `audio`, `engine.api`, `protocol`, `runtime`, `session`, `telemetry`, `tts`,
`video`.
Never: knows which transport it runs on, or what an event means.

"""
