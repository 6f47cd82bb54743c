"""`headstart talk`: a client of the Realtime protocol that plays media files to a server.

`media` decodes files, `connection` is a session with a server, `dialog` collects what comes of a
conversation (no I/O), `client` runs it, one turn for each file; `long_file` asks about one file of
any length instead. `local_server` starts a server if no URL is given, `output` prints for people or
programs, `dashboard_link` leads to a turn's waterfall, and `run` is the command.

May import: `client_key`, `gateway.errors`, `gateway.runtime`, `talk.connection`, `talk.media`.
Never: uses a server's objects. It knows a server only by its URL.

"""
