"""An LLM server as the backend: vLLM, SGLang, llama.cpp or any other with OpenAI's completions.

The server keeps no state of ours. While a person speaks, the prompt so far is sent with
`max_tokens: 1` and the answer thrown away, so that its K/V are in the server's prefix cache when
the real request comes. `backend` decides which request is due for which session, `wire` writes
requests and reads replies, `http_client` is the connection, in a thread of its own. `probe` finds
out at start what the server can (`capabilities`), and `messages` renders conversations for servers
that take chat messages only, `media` pictures and sounds in them. `servers` says which of several
servers a session is at.

May import: `api`, `chat`, `errors`, `interfaces`, `kvcache`, `placement`, `scheduling`, `session`.
Never: samples, or keeps K/V. It is the one place of the engine with an event loop.
"""
