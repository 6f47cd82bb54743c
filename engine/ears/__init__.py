"""The ears: speech in, words out while it is still being spoken.

`engine.ears.listener.Ears` is the way in. Below it, from sound to words: `mel` (streaming log-mel),
`whisper` (audio encoder), `whisper_decoder` (text decoder), `decoding` (greedy search with guards),
`hypothesis` (which words may be committed), and `checkpoint`/`ct2` (weights from disk).
"""
