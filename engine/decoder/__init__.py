"""The language model: a Llama/Qwen2 decoder on packed GGUF weights over the paged KV cache, LoRA
adapters merged at load time, and sampling.

May import: `api`, `checkpoints`, `errors`, `kernels`, `kvcache`.
Never: knows about sessions. It runs rows of streams.
"""
