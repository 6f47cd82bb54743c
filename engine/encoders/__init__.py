"""An encoder process, and its clients: pictures go there, embeddings come back.

    engine ──┐  `elsewhere` ─▶ `client` ══ ZeroMQ ══▶ `server` ─▶ cache? ── yes ─▶ embeddings
    engine ──┘  (a model whose vision              │ no
                 is in that process)               ▼
                                        queue, engines in turn ─▶ thread: vision tower

`messages` has what they say to each other, `errors` what becomes of a picture that fails.

May import: `api`, `background_thread`, `chat`, `decoder`, `errors`, `interfaces`, `kvcache`,
`models.perception`, `scheduling`, `vision`.
Never: loads a model, or knows sessions.
"""
