"""Recordings of the dashboard's feed, at the command line: replay, export, compare.

    reader ─▶ turns ─┬─▶ replay (a line a turn), serve (the page over the file)
                     ├─▶ export (csv, json), trace (perfetto)
                     └─▶ compare (bootstrap, report)

`reader` reads a file of any size as a stream, `clock` gives its messages a time of day, `turns`
makes checked records of its turns, `stages` names what a turn passes, `bars` says where its waits
lie, `pace` lets recorded time pass, `faces` draws a turn as text, and `commands` runs it all. The
dashboard's page does the same in the browser (web-demo/dashboard); docs/observability.md says what
is in a file.

Bounds: `reader` holds one line, 16 MiB at most; `turns.settled` 2,000 turns; `compare` the newest
20,000 turns of each file.

May import: `gateway.auth`, `gateway.errors`, `gateway.runtime`, `interrupts`.
Never: trusts a file. What a line lacks is unknown, never 0, and nothing of it reaches a terminal
or spreadsheet as a command.
"""
