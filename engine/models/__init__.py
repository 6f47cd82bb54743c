"""Models that hear and see by embeddings, behind one interface (`interface.StreamModel`).

Of our own, in plain torch, from their makers' directories. `perception.Perception` is the link
between a model's encoders and a session's stream of tokens.
"""
