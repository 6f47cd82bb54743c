"""Imports torch without the parts of it that no packaged model uses: a third of its time.

`import torch` runs the modules that trace, export and quantise models, and that compute shapes of
tensors without data, of which running a model on the CPU needs none. They are there as usual, but
run only when something of them is asked for (as with `importlib.util.LazyLoader`, which any look
through `sys.modules` for a file name would set off).

What may be left out differs between releases: only `RELEASE` is imported like this.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

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
)
"""Modules that run when something of them is asked for."""

_ITS_OWN = ("__all__", "__version__")
"""Names with underscores that only those ask for who want this module."""

_running = threading.RLock()


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


def import_torch() -> bool:
    """Import torch; whether it was done without `LATER`. To be called before anybody imports it,
    for another release or a second import is as usual."""
    if "torch" in sys.modules or importlib.metadata.version("torch") != RELEASE:
        importlib.import_module("torch")
        return False
    finder = _Finder()
    # A new list each time: other threads may be looking through the old one.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        torch = importlib.import_module("torch")
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
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
