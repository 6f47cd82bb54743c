"""A model's text decoder on weights from its directory: as they are (`float_decoder`) or in int8.

May import: `checkpoints`, `decoder`, `errors`, `kernels`, `kvcache`, `models.checkpoint`.
Never: reads files. Tensors come from `headstart.engine.models.checkpoint`.
"""
