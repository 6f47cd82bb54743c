"""Imports torch without the parts of it that no packaged model uses: a third of its time.

`import torch` runs the modules that trace, export and quantise models, and that compute shapes of
tensors without data, of which running a model on the CPU needs none. They are there as usual, but
run only when something of them is asked for (as with `importlib.util.LazyLoader`, which any look
through `sys.modules` for a file name would set off).

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
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, cast

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

_ITS_OWN = ("__all__", "__version__")
"""Names with underscores that only those ask for who want this module."""

_running = threading.RLock()
_loading: threading.Thread | None = None


class _Later(ModuleType):
    """A module that has not run yet. It has what the import system gave it: name, file, spec."""

    def __getattr__(self, name: str) -> Any:
        """Asked for what the module does not have, or not yet."""
        # Others are asked of all modules by those who look for something else.
        if name.startswith("__") and name not in _ITS_OWN:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _running:  # others wait until it has run
            loader = None if self.__spec__ is None else self.__spec__.loader
            if isinstance(loader, _LaterLoader):
                loader.run(self)
        return super().__getattribute__(name)


class _LaterLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.has_begun = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Later(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""

    def run(self, module: ModuleType) -> None:
        """Run it, unless it has run, or runs and asks for something of itself."""
        if self.has_begun:
            return
        self.has_begun = True
        try:
            self._loader.exec_module(module)
        except BaseException:
            self.has_begun = False
            raise


class _Finder:
    """Of `sys.meta_path`: finds the modules of `LATER`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LaterLoader(spec.loader)
        return spec


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
    finder = _Finder()
    # A new list each time: other threads may be looking through the old one.
    sys.meta_path = [finder, *sys.meta_path]
    modules = cast(dict[str, object], sys.modules)
    hidden = modules.setdefault(NOT_ON_CPUS, None)  # which says that there is none
    try:
        torch = importlib.import_module("torch")
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
        if hidden is None:
            del modules[NOT_ON_CPUS]
    # The one thing that their import does to the rest: without it there are no random generators.
    meta = importlib.import_module("torch._custom_class_base").CustomClassBaseMeta
    torch._C._set_generator_metaclass(meta)
    return True


def not_run() -> list[str]:
    """The modules of `LATER` that have not run."""
    modules = {name: sys.modules.get(name) for name in LATER}
    return [name for name, module in modules.items() if _waits(module)]


def _waits(module: ModuleType | None) -> bool:
    loader = None if module is None or module.__spec__ is None else module.__spec__.loader
    return isinstance(loader, _LaterLoader) and not loader.has_begun
