"""Sound on its way from a client to the engine, and the decisions that only sound is needed for.

`clock` has the two sample rates and every conversion, `resample` and `g711` change formats, `vad`
tells speech from noise, `tones` tones and plain melodies from voices, `endpointing` decides when a
pause ends the turn, `segmenter` puts these together: packets in, speech events out. `native` is the
compiled part.

May import: `engine.api`, `protocol`.
Never: does I/O or reads a clock while sound passes.
"""
