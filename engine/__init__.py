"""The session engine: token and frame steps over a KV cache that grows as input arrives.

    process ─▶ engine ─▶ session, scheduling, models ─▶ decoder, asr ─▶ kvcache, chat ─▶ checkpoints

Seven floors of folders; each imports only those below it, and says in its docstring which. At the
top lie `engine` (one step for all sessions), `interfaces` (what a session needs of a model),
`config` and `errors`. Importing this package loads no torch: the gateway imports `engine.api`.

May import: `api`, `asr`, `chat`, `kvcache`, `models`, `models.perception`, `process`, `scheduling`,
`session`, `weights`.
Never: imports asyncio, a web server, or the gateway.
"""
