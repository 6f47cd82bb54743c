"""Media files, decoded with PyAV and tolerant of damage: sound at 24 kHz, pictures as JPEG.

`container` opens files and decodes streams, `gaps` places sound whose timestamps jump, `audio`
makes it 24 kHz mono, `frame_image` makes a picture of a video's frame, `video` takes one picture a
second, and `playback` probes a file and plays it as a conversation's turn.

May import: `gateway.errors`, `gateway.protocol`.
Never: knows of a server.

"""
