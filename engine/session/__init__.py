"""One session: what was said and seen, what is being said now, and the answer that runs.

`command_queue` keeps its commands in order, `utterance` is the turn in progress, `conversation` the
items as tokens, `generation` an answer while it is decoded (speculated, adopted, sent), `summary`
what is noted before the window forgets it, `chunk_trace` where a chunk's time went.

May import: `api`, `chat`, `errors`, `interfaces`, `kvcache`.
Never: runs the decoder or touches K/V. It says which tokens its streams shall have.
"""
