"""Imports a module without running the packages around it, until something of them is asked for.

`import a.b.c` runs the packages `a` and `a.b` first, which may import far more than `a.b.c` needs.
Here they are there as usual, with name, file and path, and run when one of their other names is
asked for (as with `importlib.util.LazyLoader`, which the import of `a.b.c` itself would set off).
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Collection, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

log = logging.getLogger("headstart.serve")

_ITS_OWN = ("__all__", "__version__")
"""Names with underscores that only those ask for who want this module."""

_running = threading.RLock()


class _Later(ModuleType):
    """A package that has not run yet."""

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
    """Of `sys.meta_path`: finds `packages`."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._packages else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LaterLoader(spec.loader)
        return spec


def import_alone(name: str, packages: Sequence[str]) -> None:
    """Import module `name` without running `packages`, the first of which is the outermost one.

    As usual if that has been imported already, or if `name` cannot do without them. Raises what the
    usual import raises.
    """
    outermost = packages[0]
    if outermost in sys.modules:
        importlib.import_module(name)
        return
    finder = _Finder(packages)
    # A new list each time: other threads may be looking through the old one.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        importlib.import_module(name)
    except Exception as error:  # if it is not ours, the usual import raises it again
        log.info("%s is imported with all that is around it: %r", name, error)
        for module in [m for m in list(sys.modules) if m.split(".")[0] == outermost]:
            del sys.modules[module]
    else:
        return
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
    importlib.import_module(name)


def not_run(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that have not run."""
    modules = {name: sys.modules.get(name) for name in packages}
    return [name for name, module in modules.items() if _waits(module)]


def _waits(module: ModuleType | None) -> bool:
    loader = None if module is None or module.__spec__ is None else module.__spec__.loader
    return isinstance(loader, _LaterLoader) and not loader.has_begun
