"""From `python -m headstart.engine` to a running engine, and its socket to the gateway.

`assemble` puts an engine together from packaged weights, `model_directory` from a model's
directory, `load` reads a GGUF decoder, `warm_up` runs a model once, `ipc` is the ZeroMQ loop,
`weights_command` is `headstart models`.

May import: `api`, `asr`, `chat`, `checkpoints`, `config`, `decoder`, `engine`, `errors`,
`interfaces`, `kernels`, `kvcache`, `models`, `models.checkpoint`, `models.perception`,
`scheduling`, `session`, `vision`, `weights`.
Never: holds state of a session.
"""
