"""One client's session: protocol events and sound in, protocol events and engine commands out.

`session` takes events apart; `input_speech` follows what is said, `turn_taking` carries out what
that means for answers and `turns` holds whose turn it is; `responses` and `response` run answers,
`speech_output` has them spoken, `conversation` and `items` keep what was said, `video_input` and
`item_audio` take pictures and sound, `turn_reports` tells who watches, `actions` is all that
leaves. `context` is what they share.

May import: `audio`, `config`, `default_prompts`, `engine.api`, `protocol`, `telemetry`, `tts`,
`video`.
Never: does I/O or reads a clock. Events and time come in as arguments, actions go out.
"""
