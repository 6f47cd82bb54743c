"""A LoRA that teaches `small` how to talk, fitted on dialogues written for it (README.md)."""
