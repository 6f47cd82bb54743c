"""From `python -m headstart.engine` to a running engine, and its socket to the gateway.

`assemble` builds an engine from packaged weights, `model_directory` builds one from a model's
directory, `llm_server` one whose decoder is an LLM server. `load` reads a GGUF decoder (its
`header` before torch is there), `recognizer` loads a Whisper onto the device where it shall run,
`packed_weights` and `packed_ears` keep what is packed for later starts, `picture_reader` loads what
reads in pictures, `encoder_process` is a process that encodes the pictures of others, `warm_up`
runs a model once, `torch_import` imports torch in less time, `start_clock` times the start,
`unused_memory` gives back what it leaves, `ipc` is the ZeroMQ loop, `weight_path` says where a
weight is, and `weights_command` is `headstart models`.

May import: `api`, `asr`, `asr.whisper`, `background_thread`, `backends`, `backends.llm_server`,
`chat`, `checkpoints`, `config`, `decoder`, `device`, `encoders`, `engine`, `errors`, `interfaces`,
`kernels`, `kvcache`, `models`, `models.checkpoint`, `models.decoder`, `models.perception`,
`scheduling`, `session`, `vision`, `vision.reading`, `vision.regions`, `weights`.
Never: holds session state.
"""
