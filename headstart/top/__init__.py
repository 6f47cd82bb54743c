"""`headstart top`: the dashboard's strip and its sessions in a terminal.

`source` brings the messages of a server's feed or of a recording, `state` holds what they say (no
I/O), `tiles` judges it, `screen` draws it, `keyboard` reads keys, `run` is the command.

Bounds: `state` 10,000 turns of the newest 5 minutes, and what one snapshot holds. A terminal that
is slow holds up the socket, and the server then drops the oldest messages.

May import: `gateway.errors`, `gateway.runtime`, `client_key`, `interrupts`, `recordings`.
Never: prints what came from a server or file unless it is made harmless (`recordings.faces.plain`).
"""
