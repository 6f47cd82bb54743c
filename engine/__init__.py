"""The session engine: speech, frames and text become K/V as they arrive, and answers are decoded.

    process ─▶ engine ─▶ session, scheduling, models ─▶ decoder, asr ─▶ kvcache, chat ─▶ checkpoints

Folders form seven layers. Each imports only layers below it, as its docstring says. Beside the
folders are `engine` (one step for all sessions), `interfaces` (what a session needs of a model),
`config`, `errors`, and `background_thread` (what works beside the steps). Importing this package
loads no torch, because the gateway imports `engine.api`.

May import: `api`, `asr`, `chat`, `encoders`, `kernels`, `kvcache`, `models`, `models.perception`,
`process`, `scheduling`, `session`, `weights`.
Never: imports asyncio, a web server, or the gateway.
"""
