"""The gateway: sessions, transports, the media path, turn detection, the protocol, budgets, metrics.

It knows the engine by its messages (`engine.api`) and imports no torch.
"""
