"""From `python -m headstart.engine` to a running engine, and its socket to the gateway.

`assemble` builds an engine from packaged weights, `model_directory` builds one from a model's
directory, `llm_server` one whose decoder is an LLM server. `load` reads a GGUF decoder,
`picture_reader` loads what reads in pictures, `warm_up` runs a model once, `ipc` is the ZeroMQ
loop, and `weights_command` is `headstart models`.

May import: `api`, `asr`, `backends`, `backends.llm_server`, `chat`, `checkpoints`, `config`,
`decoder`, `engine`, `errors`, `interfaces`, `kernels`, `kvcache`, `models`, `models.checkpoint`,
`models.perception`, `scheduling`, `session`, `vision`, `vision.reading`,
`vision.regions`, `weights`.
Never: holds session state.
"""
