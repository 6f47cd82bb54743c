"""An engine behind an LLM server: `backend` is the benchmark, on llama.cpp's server and vLLM.

`servers` builds their environments and runs them: `llamacpp_server` is run there, `as_safetensors`
makes the folder that vLLM loads. `behind_server` is the engine, told the words.
"""
