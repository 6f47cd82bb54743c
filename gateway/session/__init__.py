"""The session core: client events, audio and engine events in, a list of actions out.

`session` dispatches events. `input_speech` follows the user's speech, `turn_taking` applies its
consequences to responses, and `turns` holds the turn state machine. `responses` and `response` run
responses, and `speech_output` synthesises and truncates their audio. `conversation` and `items`
store what was said. `video_input` and `item_audio` take images and audio. `turn_reports` reports
turns to observers. `actions` lists the actions, and `context` is the state these modules share.

May import: `audio`, `default_prompts`, `engine.api`, `protocol`, `settings`,
`telemetry`, `tts`, `video`.
Never: does I/O or reads a clock. Events and time come in as arguments, actions go out.

"""
