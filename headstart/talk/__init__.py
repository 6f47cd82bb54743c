"""`headstart talk`: a client of the Realtime protocol that plays media files to a server.

`media` decodes files, `dialog` collects the server's events (no I/O), `client` runs the
conversation, `comeback` resumes it after a broken connection, `local_server` starts a server if no
URL is given, `refusals` reads why a server takes nobody, `output` prints for people or programs,
`links` makes a turn's link to the dashboard, and `run` is the command.

May import: `client_key`, `gateway.audio`, `gateway.errors`, `gateway.protocol`, `gateway.runtime`,
`gateway.transport.webrtc`.
Never: uses a server's objects. It knows a server only by its URL.

"""
