"""A model's text decoder on its directory's weights: in float (`float_decoder`) or int8 (`int8`).

May import: `checkpoints`, `decoder`, `errors`, `kernels`, `kvcache`, `models.checkpoint`.
Never: reads files. Tensors come from `headstart.engine.models.checkpoint`.
"""
