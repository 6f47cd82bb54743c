"""One client's session: protocol events and sound in, protocol events and engine commands out.

`session` takes events apart; `input_speech` and `barge_in` follow what is said, `turns` holds whose
turn it is, `responses` and `response` run answers, `speech_output` has them spoken, `conversation`
keeps the items, `video_input` and `item_audio` take pictures and sound, `actions` is all that
leaves. `context` is what the parts share.

May import: `audio`, `config`, `default_prompts`, `engine.api`, `protocol`, `telemetry`, `tts`,
`video`.
Never: does I/O or reads a clock. Events and time come in as arguments, actions go out.
"""
