"""How a model hears and sees: encoders that take a stream in pieces, and rules by which sound and
pictures become tokens with positions. `interface.StreamModel` is what every family offers the
engine.

May import: `api`, `asr`, `chat`, `checkpoints`, `decoder`, `errors`, `interfaces`, `kvcache`,
`models.checkpoint`, `weights`.
Never: knows of sessions beyond their stream of tokens.
"""
