"""Conversations as tokens: chat templates, message order, tools, and eviction from the window.

`tokenizer` and `template` are read from the weights. `render` turns items into tokens,
`context_window` selects the ranges to evict, `tools` writes and parses function calls, `stopping`
ends an answer's text, and `accounting` counts tokens by modality. Pure functions, no torch.


May import: `api`, `checkpoints`, `errors`.
Never: accesses the cache.
"""
