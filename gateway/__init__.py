"""The gateway: sessions, transports, the media path, turns, the protocol, budgets and metrics.

It knows the engine by its messages (`engine.api`) and imports no torch.
"""
