"""Whisper's network: audio encoder, text decoder, vocabulary, int8 packing, and checkpoints of both
formats under one set of names.

May import: `checkpoints`, `errors`, `kernels`.
Never: decides which words are shown.
"""
