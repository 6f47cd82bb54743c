"""A model's input side: streaming encoders for sound and pictures, and the rules by which they
become tokens with positions. `interface.StreamModel` is what every family provides.

May import: `api`, `asr`, `chat`, `checkpoints`, `decoder`, `errors`, `interfaces`, `kvcache`,
`models.checkpoint`, `vision`, `vision.regions`, `weights`.
Never: knows about sessions beyond their token stream.
"""
