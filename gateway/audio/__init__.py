"""Audio processing between client and engine, and the decisions that need only audio.

`clock` defines the two sample rates and all conversions. `resample` and `g711` convert formats.
`vad` detects speech, `tones` tells tones and plain melodies from voices, `timbre` hums from words,
`echo` our own answer at the microphone from a person,
`endpointing` decides when
a pause ends the turn, and `segmenter` combines these: packets in, speech events out. `native` is
the compiled part.

May import: `engine.api`, `protocol`.
Never: does I/O or reads a clock while processing audio.

"""
