"""Images: sampling of camera frames and of files, and decoding outside the event loop.

`sampling` and `content_sampling` hold the causal policies: sans-I/O, with time as an argument.
`file_sampling` chooses the frames of a file's segments in two passes. `decode` decodes images,
`decode_pool` runs it in `decode_worker` processes, and `scores` what the policies compare.

May import: `engine.api`, `protocol`, `runtime`.
Never: keeps a frame that the session has not asked for.

"""
