"""Imports a module without running the packages around it, until something of them is asked for.

`import a.b.c` runs the packages `a` and `a.b` first, which may import far more than `a.b.c` needs.
Here they are there as usual, with name, file and path, and run when one of their other names is
asked for (`headstart.engine.api.deferred_import`).
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence

from headstart.engine.api.deferred_import import deferring

log = logging.getLogger("headstart.serve")


def import_alone(name: str, packages: Sequence[str]) -> None:
    """Import module `name` without running `packages`, the first of which is the outermost one.

    As usual if that has been imported already, or if `name` cannot do without them. Raises what the
    usual import raises.
    """
    outermost = packages[0]
    if outermost in sys.modules:
        importlib.import_module(name)
        return
    try:
        with deferring(packages):
            importlib.import_module(name)
        return
    except Exception as error:  # if it is not ours, the usual import raises it again
        log.info("%s is imported with all that is around it: %r", name, error)
        for module in [m for m in list(sys.modules) if m.split(".")[0] == outermost]:
            del sys.modules[module]
    importlib.import_module(name)
