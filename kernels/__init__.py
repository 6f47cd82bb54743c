"""The most expensive operations, one folder each: a plain torch reference beside C or Triton.

Never: imports the engine or the gateway.
"""
