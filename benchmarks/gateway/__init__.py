"""The gateway alone, beside a fake engine: sessions per core, packet loss, dashboard, voice.

`capacity` is `headstart bench gateway`: it pins a gateway to a core and loads it with `clients`, a
process of `calls` (WebRTC) or WebSockets, some of which flood (`floods`). `loss`,
`dashboard`, `dashboard_page` and `voice` are commands of the same names; `call_transports` compares
WebRTC libraries and is run as a module.
"""
