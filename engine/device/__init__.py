"""The decoder on a GPU: weights and paged K/V on the device, Triton kernels, CUDA graphs, sampling;
encoders there, and Whisper, on streams of their own.

A second implementation of `engine.decoder.decoder.TextDecoder` and of `engine.kvcache.storage`:
scheduler, runner and sessions do not know which one they have. On CPU tensors the same code runs on
plain torch operations, for tests.

May import: `asr.whisper`, `checkpoints`, `config`, `decoder`, `errors`, `kernels`, `kvcache`.
Never: imports Triton unless a GPU is used.
"""
