"""WebRTC calls: the same session as over a WebSocket, with sound and pictures on tracks of their
own.

In: `audio_track` into `audio_receiver` (`receive_buffer`, then `opus` or `telephone`), and
`video_track`. Out: `audio_sender` and the data channel (`channel`). `calls` is the HTTP side,
`call` one peer connection. `receive_buffer`, `audio_receiver` and `rtp_clock` take packets and time
as arguments.

May import: `audio`, `auth`, `config`, `connection`, `engine.api`, `protocol`, `runtime`, `session`,
`telemetry`, `video`.
Never: reaches into aiortc's private parts outside `aiortc_hooks`.
"""
