"""`headstart talk`: a client of the Realtime protocol that plays media files to a server.

`media` decodes files, `dialog` understands what the server says (no I/O), `client` holds the
conversation, `local_server` starts a server when no URL is given, `output` shows it to people or
programs, `run` is the command.
"""
