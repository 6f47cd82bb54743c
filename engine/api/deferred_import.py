"""Modules that are imported at once and run later: when something of them is asked for.

Within `deferring(names)` each module of `names` that is imported gets its place in `sys.modules`,
with name, file and spec, and does not run. It runs when one of its other names is asked for (as
with `importlib.util.LazyLoader`, which any look through `sys.modules` for a file name would set
off). The module is here because gateway and engine both use it, and this package is all that the
gateway knows of the engine.

While a module runs, other threads that ask for something of it wait, by the import system's own
lock of that module. That one knows who waits for whom: where two threads import modules that need
each other, one of them goes on with a module that has run in part, as with any import. With another
lock they would wait for each other forever: one runs the module and imports something, the other is
importing that and asks for something of the module.
"""

from __future__ import annotations

import contextlib
import importlib._bootstrap
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_ITS_OWN = ("__all__", "__version__")
"""Names with underscores that only those ask for who want this module."""

_bootstrap: Any = importlib._bootstrap
"""Of which no public part has the locks: `_ModuleLockManager`, `_DeadlockError` (3.3 to 3.14)."""


class _Deferred(ModuleType):
    """A module that has not run yet. It has what the import system gave it: name, file, spec."""

    def __getattr__(self, name: str) -> Any:
        """Asked for what the module does not have, or not yet."""
        # Others are asked of all modules by those who look for something else.
        if name.startswith("__") and name not in _ITS_OWN:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        loader = _loader_of(self)
        if loader is not None and not loader.has_run:
            with contextlib.ExitStack() as held:
                try:
                    held.enter_context(_bootstrap._ModuleLockManager(self.__name__))
                except _bootstrap._DeadlockError:  # whoever runs it waits for this thread
                    return super().__getattribute__(name)
                loader.run(self)
        return super().__getattribute__(name)


class _DeferringLoader(Loader):
    """Makes a `_Deferred` of what `loader` would run."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.has_begun = self.has_run = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""

    def run(self, module: ModuleType) -> None:
        """Run it, unless it has run, or runs and asks for something of itself."""
        if self.has_begun:
            return
        self.has_begun = True
        try:
            self._loader.exec_module(module)
            self.has_run = True
        except BaseException:
            self.has_begun = False
            raise


class _Finder:
    """Of `sys.meta_path`: finds the modules `names`."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _DeferringLoader(spec.loader)
        return spec


@contextlib.contextmanager
def deferring(names: Collection[str]) -> Iterator[None]:
    """Within it, modules `names` that are imported for the first time run later."""
    finder = _Finder(names)
    # A new list each time: other threads may be looking through the old one.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]


def not_run(names: Sequence[str]) -> list[str]:
    """Those of `names` that were imported within `deferring` and have not run."""
    loaders = {name: _loader_of(sys.modules.get(name)) for name in names}
    return [name for name, loader in loaders.items() if loader and not loader.has_begun]


def _loader_of(module: ModuleType | None) -> _DeferringLoader | None:
    loader = None if module is None or module.__spec__ is None else module.__spec__.loader
    return loader if isinstance(loader, _DeferringLoader) else None
