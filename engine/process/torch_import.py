"""Imports torch without the parts of it that no packaged model uses: a third of its time.

`import torch` runs the modules that trace, export and quantise models, and that compute shapes of
tensors without data, of which running a model on the CPU needs none. They are there as usual, but
run only when something of them is asked for (`headstart.engine.api.deferred_import`).

What may be left out differs between releases: only `RELEASE` is imported like this.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import cast

from headstart.engine.api.deferred_import import deferring

RELEASE = "2.14.1"
"""Of torch, as in pyproject.toml."""

LATER = (
    "torch._meta_registrations",  # shapes without data: a quarter of the import
    "torch.distributed._meta_registrations",
    "torch.distributions",
    "torch.export",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.quantization",
    "torch.utils.data",
    "torchgen.model",
    "unittest.mock",  # and asyncio with it
)
"""Modules that run when something of them is asked for."""

NOT_ON_CPUS = "cuda.bindings"
"""What torch does without if it is not installed: CUDA's functions, for those who record graphs."""

_loading: threading.Thread | None = None


def load_libraries() -> None:
    """Begin to load torch's libraries in a thread, which is a third of its import. Meanwhile the
    caller can run whatever loads no library: a second load would wait for this one. If loading
    fails, `import_torch` raises the error."""
    global _loading
    found = importlib.util.find_spec("torch")
    if sys.platform != "linux" or "torch" in sys.modules or found is None or found.origin is None:
        return
    # With its dependencies all but the one that calls Python, for which the lock would be needed.
    path = Path(found.origin).with_name("lib") / "libtorch.so"
    # `ctypes.CDLL(path)` keeps the interpreter's lock, a function of a library does not.
    load = ctypes.CDLL(None).dlopen
    load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    arguments = os.fsencode(path), os.RTLD_NOW
    _loading = threading.Thread(target=load, args=arguments, name="torch's libraries", daemon=True)
    _loading.start()


def import_torch() -> bool:
    """Import torch; whether it was done without `LATER`. To be called before anybody imports it,
    for another release or a second import is as usual."""
    if _loading is not None:
        _loading.join()
    if "torch" in sys.modules or importlib.metadata.version("torch") != RELEASE:
        importlib.import_module("torch")
        return False
    modules = cast(dict[str, object], sys.modules)
    hidden = modules.setdefault(NOT_ON_CPUS, None)  # which says that there is none
    try:
        with deferring(LATER):
            torch = importlib.import_module("torch")
    finally:
        if hidden is None:
            del modules[NOT_ON_CPUS]
    # The one thing that their import does to the rest: without it there are no random generators.
    meta = importlib.import_module("torch._custom_class_base").CustomClassBaseMeta
    torch._C._set_generator_metaclass(meta)
    return True
