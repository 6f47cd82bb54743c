"""Images: sampling of camera frames, and decoding outside the event loop.

`sampling` is sans-I/O and takes time as an argument. `decode` decodes images, `decode_pool` runs it
in `decode_worker` processes.

May import: `engine.api`, `protocol`, `runtime`.
Never: keeps a frame that the session has not asked for.

"""
