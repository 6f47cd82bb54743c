"""`headstart talk`: a client of the Realtime protocol that plays media files to a server.

`media` decodes files, `dialog` puts what the server says in order (no I/O), `client` holds the
conversation, `comeback` lets it survive a broken connection, `local_server` starts a server when no
URL is given, `output` shows it to people or programs, `links` leads from a turn to the dashboard,
`run` is the command.

May import: `gateway.audio`, `gateway.errors`, `gateway.protocol`, `gateway.runtime`,
`gateway.transport.webrtc`.
Never: reaches into a server's objects. It knows one by its URL only.
"""
