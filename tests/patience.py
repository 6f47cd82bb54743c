"""How long the clients of tests wait: a crowded machine takes longer than their libraries allow.

httpx gives up after 5 s, websockets after 10 s of a handshake and 20 s without a pong. No test is
about those numbers: one that is names its own limit.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

CLIENT_WAIT_S = 60.0
_WEBSOCKETS = ("websockets.asyncio.client", "websockets.sync.client")
_LIMITS = ("open_timeout", "ping_timeout")


def lengthen() -> None:
    """Raise the default limits of those libraries that are imported by now."""
    if httpx := sys.modules.get("httpx"):
        default = inspect.signature(httpx.get).parameters["timeout"].default
        default.connect = default.read = default.write = default.pool = CLIENT_WAIT_S
    for name in _WEBSOCKETS:
        if module := sys.modules.get(name):
            connect: Any = module.connect
            function: Any = connect.__init__ if inspect.isclass(connect) else connect
            defaults: dict[str, Any] = function.__kwdefaults__
            defaults |= {limit: CLIENT_WAIT_S for limit in _LIMITS if limit in defaults}
