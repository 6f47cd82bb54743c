"""Other implementations on the same weights, in the same process, to compare with.

`engine_peers`: transformers and llama.cpp, driven as their users would. `yardstick`: Whisper
offline, by transformers (`whisper_peer`, `whisper_twin`), and how two texts are compared.
"""
