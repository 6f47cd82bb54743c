"""A model as its makers publish it: config.json, safetensors, tokenizer and chat template, each
value checked and refused by name.

May import: `chat`, `checkpoints`, `errors`, `weights`.
Never: builds a model.
"""
