"""The language model: a decoder of the Llama and Qwen2 family on packed GGUF weights, over the
paged KV cache, with a LoRA added as it is loaded, and sampling.

May import: `api`, `checkpoints`, `errors`, `kernels`, `kvcache`.
Never: knows of sessions. It runs rows of streams.
"""
