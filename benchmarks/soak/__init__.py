"""Soak test: twenty clients that misbehave, as people and networks do, against a real server.

`run` is the benchmark. A `visit` is one client's session over one of `connections`; it sends
`sounds` and `invalid_events`, and `canary` words show what leaks into another visit.
`half_connections` never become a session. `faults` hit the server meanwhile, with a client that
stops reading (`stuck`) and a date that jumps (`wall_clock`). `server_state`, `memory` and `tally`
have what is judged.
"""
