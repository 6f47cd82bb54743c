"""Which pages may talk to this server from a browser.

Browsers name the page's origin in every request that could do harm; other clients name none and
pass. A page of this server passes, and those on the list. So no page that somebody happens to have
open can use a server that listens on their machine.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

ANY = "*"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origins:
    """`allows` an `Origin` header. `listed`: origins between spaces, or `*`.

    `named_hosts`: whether a page served under a host's *name* counts as ours. On a server without
    keys it does not, but for localhost: whoever owns a name can point it at 127.0.0.1 (DNS
    rebinding), and their page would be of the same origin.
    """

    def __init__(self, listed: str, *, named_hosts: bool) -> None:
        self._any = ANY in listed.split()
        self._listed = {_normal(origin) for origin in listed.split()} - {None}
        self._named_hosts = named_hosts

    def allows(self, origin: str | None, host: str) -> bool:
        """`origin`: the header, None where there is none. `host`: the `Host` header."""
        if origin is None or self._any:
            return True
        asked = _normal(origin)
        if asked is None:  # "null" too: a sandboxed frame, a file
            return False
        if asked in self._listed:
            return True
        is_ours = asked == _normal(f"{asked.scheme}://{host}")
        return is_ours and (self._named_hosts or _is_address(asked.host))


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


def _normal(origin: str) -> _Origin | None:
    """Its parts, in small letters; None for what is no origin."""
    try:
        parts = urlsplit(origin.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.path not in ("", "/"):
        return None
    return _Origin(parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme])


def _is_address(host: str) -> bool:
    """Whether it is an address or localhost, which no name server has a say in."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False
