"""The OpenAI Realtime (GA) wire format: the one place that knows this JSON. No I/O, no clock.

`parse` reads what clients send, `events` builds what they are sent, `session_config` keeps the
session's settings, `errors` names every refusal, `images` turns data URIs into pixels, `extensions`
is what this server speaks beyond the API.

May import: `engine.api`.
Never: knows of the engine, of sessions or of connections.
"""
