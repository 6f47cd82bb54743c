"""The operations that cost the most, one folder each: a plain torch reference beside C or Triton.

Nothing here imports the engine or the gateway.
"""
