"""The gateway process: people's connections on one side, the engine's messages on the other.

    server ─▶ transport ─▶ connection ─▶ session ─▶ audio, video, tts ─▶ protocol, runtime

Seven floors of folders; each imports only those below it, and says in its docstring which. At the
top lie what all share: `config` (settings), `errors`, `default_prompts`, `engine_link` (the socket
to the engine) and `fake_engine` (an engine without a model, for tests).

May import: `engine.api`, `runtime`.
Never: imports torch, kernels, or of the engine anything but `headstart.engine.api`.
"""
