"""The latency dashboard's feed: what the server says of its turns, live and on record.

    session cores ─▶ hub ─┬─▶ ring: the newest turns and errors, for whoever comes later
                          └─▶ a bounded queue for each watcher ─▶ feed (WebSocket), recorder (file)

`messages` builds and encodes what is said, `ring` keeps it, `watcher` is the queue, `hub` is what
sessions tell (an `Observer`), `dashboard` makes a snapshot a second while somebody looks, `feed` is
a watcher's socket and `recorder` the file of `headstart serve --record`. docs/observability.md says
what a reader gets.

Costs: while nobody looks, a record in the ring for each turn and nothing else; a message is encoded
when the first watcher gets it, once for all. Bounds: `ring` 2,000 turns, 64 MiB and 200 errors;
`dashboard` 16 watchers; `watcher` 2,000 messages and 4 MiB each, the oldest go first.

May import: `audio`, `engine.api`, `errors`, `runtime`, `telemetry`.
Never: holds up a session, or holds what was said unless `dashboard_content` is set.
"""
