"""A LoRA that tunes `small` for conversation, fitted on dialogues written for it (README.md)."""
