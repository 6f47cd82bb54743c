"""A client's session with a server: opened, resumed after a broken connection, and listened to.

    address ─▶ websocket or webrtc ─▶ resumption ─▶ session

`address` makes a URL of what the user typed, `websocket` and `webrtc` open a connection to it,
`resumption` opens the next one when the network breaks it, `session` counts the events and repeats
requests that a broken connection took along. `refusals` reads why a server takes nobody.

May import: `client_key`, `gateway.audio`, `gateway.errors`, `gateway.protocol`, `gateway.runtime`,
`gateway.transport.webrtc`.
Never: knows what a session is used for.

"""
