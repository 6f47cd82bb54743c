"""Other implementations on the same weights, in the same process, to compare with.

`engines`: transformers and llama.cpp, driven as their users would. `offline`: Whisper offline, by
transformers (`offline_whisper`, `transformers_whisper`), and how two texts are compared.
"""
