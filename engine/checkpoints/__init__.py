"""Readers of weight files: GGUF, safetensors, CTranslate2, and our own of packed weights. Headers
are validated; tensors are memory-mapped and cost memory only when they are accessed.

May import: `errors`, `kernels`.
Never: knows which model it reads, apart from a decoder's sizes (`decoder_spec`).
"""
