"""`headstart bench gpu`: the Triton kernels, then whole engines with live sessions, on one GPU.

`command` runs the stages, each in a process of its own with a limit of time (`stages`), and prints
the plan (`plan`). `kernels` checks and times kernels. `sessions` measures an engine: `models` makes
it, on random weights (`packed` writes a GGUF file of them), and `people` are those who talk to it.
"""
