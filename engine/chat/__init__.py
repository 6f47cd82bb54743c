"""Conversations as tokens: chat templates, the order of messages, tools, and what has to go when
the window is full.

`tokenizer` and `template` come from the weights, `render` lays messages out, `context_window` says
which ranges go, `tools` spells and reads function calls, `stopping` ends an answer's text,
`accounting` counts tokens by kind. Pure functions, no torch.

May import: `api`, `checkpoints`, `errors`.
Never: touches the cache.
"""
