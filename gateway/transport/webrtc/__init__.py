"""WebRTC calls: the same session as over a WebSocket, with audio and video on separate tracks.

In: `media_path` receives packets, `audio_track` feeds `audio_receiver` (`receive_buffer`, then
`opus` or `telephone`), and `video_track` samples video. Out: `audio_sender`, `media_path` and the
data channel (`channel`). `calls` is the HTTP side, `call` one peer connection. `receive_buffer`,
`audio_receiver` and `rtp_clock` take packets and time as arguments.

May import: `audio`, `auth`, `connection`, `engine.api`, `protocol`, `runtime`, `session`,
`settings`, `telemetry`, `video`.
Never: reaches into aiortc's private parts outside `aiortc_hooks`, `media_path` (sound) and
`steady_time` (its clock).

"""
