"""The OpenAI Realtime (GA) wire format: the only package that knows this JSON. No I/O, no clock.

`parse` parses client events, `events` builds server events, `session_config` holds the session's
settings, `errors` defines every refusal, `images` decodes data URIs, and `extensions` defines our
additions to the API.

May import: `engine.api`.
Never: knows of the engine, of sessions or of connections.

"""
