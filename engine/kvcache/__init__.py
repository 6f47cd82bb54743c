"""The paged KV cache, and the streams of tokens whose K/V it holds.

`block_pool` tracks block ownership and `storage` is the memory; `mixed_pool` and `mixed_storage`
are the same where pictures have blocks of a narrower type. `token_stream` holds a session's tokens
and the number of them in the cache; `reconcile` is the one way to change them. `prefix_hash` lets
streams share blocks, `eviction` and `positions` keep a shortened stream's K/V valid, `offload`
moves idle streams to host memory, and `soft_tokens` holds embeddings that take part in a stream
like vocabulary tokens.

May import: `checkpoints`, `config`, `errors`, `kernels`.
Never: interprets the tokens.
"""
