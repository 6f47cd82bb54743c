"""The session engine: token and frame steps over a KV cache that grows as input arrives.

Importing this package loads no torch: the gateway imports `engine.api` and nothing else.
"""
