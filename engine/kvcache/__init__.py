"""The paged KV cache, and the streams of tokens whose K/V it holds.

`block_pool` says who owns which block, `storage` is the memory, `token_stream` a session's tokens
and how many of them are in the cache (`reconcile` is the one way to change them), `prefix_hash`
lets streams share blocks, `eviction` and `positions` keep a shortened stream right, `offload` moves
idle ones to host memory, `soft_tokens` are embeddings that stand in a stream like words.

May import: `checkpoints`, `config`, `errors`, `kernels`.
Never: knows what the tokens mean.
"""
