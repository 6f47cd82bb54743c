"""One session: its conversation, the utterance in progress, and the running answer.

`session` carries out commands, which `command_queue` keeps in order. `utterance` is the speech in
progress, `recognition` has the recogniser hear it, `spelling` is how the model reads its words, and
`clips` is sound sent for later items. `conversation` holds all of it as tokens: `items` keeps the
order, `item_tokens` turns an item into segments. `generation` is an answer while it is decoded
(speculated, adopted, sent). `summary` writes down what the window is about to evict, and `writing`
follows what is read in pictures. `chunk_trace` records where an audio chunk's time went.

May import: `api`, `chat`, `errors`, `interfaces`, `kvcache`.
Never: runs the decoder or touches K/V. It states which tokens its streams shall have.
"""
