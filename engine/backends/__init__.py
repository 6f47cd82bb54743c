"""Backends: where a session's tokens are prefilled and its answers decoded.

`local` runs our decoder over the paged KV cache, step by step. `llm_server` sends the same prompts
to an LLM server over HTTP. `headstart.engine.engine.Backend` is what both implement: they read from
the sessions which tokens are pending and which answers run, and write the results back.

May import: `api`, `decoder`, `errors`, `kvcache`, `scheduling`, `session`.
Never: takes commands or events of the gateway.
"""
