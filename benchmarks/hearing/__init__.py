"""Speech recognition: words that are wrong while they are streamed, beside Whisper offline.

`wer` measures a list of recordings and what is heard in noise (`false_words`), `conditions`
sentences under noise, codecs and rooms; `segmented` cuts a clip as the gateway does.
"""
