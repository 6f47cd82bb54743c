"""A published model directory: config.json, safetensors, tokenizer and chat template, each value
validated, with errors that name it.

May import: `chat`, `checkpoints`, `errors`, `weights`.
Never: builds a model.
"""
