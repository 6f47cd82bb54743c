"""Kernels for a GPU, in Triton: one file each, its plain torch reference in `reference.py`.

Every operation has a function that plans its launches (`launch.Launch`) from its tensors, and one
that runs them. Planning needs no GPU and no data, so that the same launches are compiled for chips
that are not there (`compiling.py`), interpreted on the CPU (TRITON_INTERPRET=1) and run.

Never: imports the engine or the gateway. Of the engine, `engine.device` calls it.
"""
