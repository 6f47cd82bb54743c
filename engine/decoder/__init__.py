"""The language model: a decoder of the Llama and Qwen2 family on packed GGUF weights."""
