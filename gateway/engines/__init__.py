"""The engines of one gateway: several processes here, and others that connect from elsewhere.

    Engines ─▶ Placer (which engine holds a session)      engine.placement
       └────▶ EngineLink, one for each engine
                 ├── a socket of its own                  engines that we start (`local`)
                 └── a peer of one ROUTER, with keys      engines from elsewhere (`port`)

`engines` places sessions, moves those of an engine that is lost, and drains engines. `totals` adds
up what they count.

May import: `engine.api`, `engine.placement`, `engine_address`, `engine_link`, `errors`,
`runtime`, `settings`, `telemetry`.
Never: knows what is in a conversation. `headstart.gateway.session` does.
"""
