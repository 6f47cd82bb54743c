"""Speech recognition: an open utterance goes in chunk by chunk, settled and tentative words come
out.

`recognizer.WhisperRecognizer` is the way in. From sound to words: `mel` (streaming log-mel),
`whisper` (the network), `decoding` (greedy search with guards), `hypothesis` (which words may be
committed), `shown` (which are shown before), `silence` (behind every sound), `window_cut` (where
old sound may be dropped).

May import: `asr.whisper`, `errors`, `kernels`, `weights`.
Never: knows of sessions or turns.
"""
