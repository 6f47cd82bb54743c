"""The whole server as people start it, in real time.

`live`: several speakers who never pause; `conversations`: people (`conversing`) who say
`spoken_turns`, each over a cheap client (`room`); `start`. `cli` has the commands.
"""
