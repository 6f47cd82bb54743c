"""The gateway process: clients' connections on one side, the engine's messages on the other.

    server ─▶ transport ─▶ connection ─▶ session ─▶ audio, video, tts ─▶ protocol, runtime

The folders form seven layers; each imports only those below it, and names them in its docstring.
The modules here are shared by all: `settings` and `config` (where they come from), `errors`,
`default_prompts`, `engine_link` (the socket to the engine) and `fake_engine` (an engine without a
model, for tests).

May import: `engine.api`, `runtime`.
Never: imports torch, kernels, or of the engine anything but `headstart.engine.api` and
`headstart.engine.placement`.

"""
