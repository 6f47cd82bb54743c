"""CURVE keys of the connections between a gateway, engines and encoder processes on other hosts
(ZeroMQ's RFC 26).

Each host has a folder, made by `headstart keys`:

    gateway/own.key_secret     the gateway's pair
    gateway/engines/NAME.key   public key of an engine that may connect, by the engine's name
    NAME/own.key_secret        that engine's pair
    NAME/gateway.key           the gateway's public key

With an encoder process of its own (`headstart keys --encoder`), which engines connect to:

    encoder/own.key_secret     its pair
    encoder/engines/NAME.key   public key of an engine that may connect; the gateway's, for those
                               that it starts itself, as gateway.key
    NAME/encoder.key           its public key

The files are pyzmq's certificates. Secret ones can be read by their owner only. The connection is
encrypted, and each side knows the other: an engine talks to no other gateway, and a gateway accepts
no engine whose public key is not in its folder.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
import zmq.auth
from zmq.utils import z85

OWN, GATEWAY, ENGINES, ENCODER = "own", "gateway", "engines", "encoder"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
"""Names of engines and gateways: they are parts of file names, tokens, labels and URLs."""
LOOPBACK_NAMES = ("localhost",)
REFUSED_RETRY_S = 1.0
_EVENT = struct.Struct("=hi")

log = logging.getLogger("headstart.engine")


class BadKeys(Exception):
    """Keys that cannot be used or made, or an address that needs some."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One host's pair, as ZeroMQ's Z85 text."""

    public: bytes
    secret: bytes = field(repr=False)


def make_keys(folder: Path, engines: Iterable[str], *, encoder: bool = False) -> list[Path]:
    """Make what is missing of a gateway's folder, of one folder for each engine, and of an
    `encoder` process's; returns the folders that were made. Existing keys stay. Raises
    `BadKeys`."""
    names = list(engines)
    for name in names:
        if NAME.fullmatch(name) is None or name in (GATEWAY, ENCODER):
            raise BadKeys(
                f"an engine cannot be called {name!r}: expected up to 32 of a-z, 0-9 and inner "
                f"hyphens, and neither {GATEWAY!r} nor {ENCODER!r}"
            )
    servers = (GATEWAY, ENCODER) if encoder else (GATEWAY,)
    try:
        made = [host for name in (*servers, *names) if _make_pair(host := folder / name)]
        _introduce(folder, GATEWAY, names)
        if encoder:
            _introduce(folder, ENCODER, [GATEWAY, *names])
    except OSError as error:
        raise BadKeys(f"cannot write keys: {error}") from error
    return made


def _introduce(folder: Path, server: str, names: Iterable[str]) -> None:
    """Give `server` the public keys of those that may connect, and them its own."""
    accepted = folder / server / ENGINES
    accepted.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        shutil.copyfile(folder / name / f"{OWN}.key", accepted / f"{name}.key")
        shutil.copyfile(folder / server / f"{OWN}.key", folder / name / f"{server}.key")


def _make_pair(host: Path) -> bool:
    """Whether the pair was not there. The secret file is never readable by others, not even while
    it is written: it is made in a folder of mode 0700."""
    if (host / f"{OWN}.key_secret").is_file():
        return False
    host.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=host, prefix=".new-") as private:
        for file in map(Path, zmq.auth.create_certificates(private, OWN)):
            file.chmod(0o600 if file.suffix == ".key_secret" else 0o644)
            file.replace(host / file.name)
    return True


def own_pair(folder: Path) -> Pair:
    """Raises `BadKeys`: no such file, no key in it, or others may read it."""
    file = folder / f"{OWN}.key_secret"
    public, secret = _read(file)
    if secret is None:
        raise BadKeys(f"{file}: has no secret key; `headstart keys` makes one")
    if file.stat().st_mode & 0o077:
        raise BadKeys(f"{file}: others may read it; expected mode 0600")
    return Pair(public, secret)


def servers_key(folder: Path, server: str = GATEWAY) -> bytes:
    """The public key of an engine's gateway, or of its encoder process. Raises `BadKeys`."""
    return _read(folder / f"{server}.key")[0]


def accepted_engines(folder: Path, bad: list[str] | None = None) -> dict[bytes, str]:
    """Names of the engines that a gateway accepts, by public key. Read anew for each connection, so
    that a key may be added or removed while the gateway runs. `bad`: takes what is wrong with a
    file, which is then left out. Without it: raises `BadKeys`."""
    found = {}
    for file in sorted((folder / ENGINES).glob("*.key")):
        if NAME.fullmatch(file.stem) is None:
            continue
        try:
            found[_read(file)[0]] = file.stem
        except BadKeys as error:
            if bad is None:
                raise
            bad.append(str(error))
    return found


def _read(file: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(file)
    except (OSError, ValueError) as error:
        raise BadKeys(f"{file}: is no key file ({error}); `headstart keys` makes them") from error
    for key in (public, secret):
        if key is not None and len(key) != 40:
            raise BadKeys(f"{file}: a key has {len(key)} characters; expected 40")
        if key is not None and not _is_z85(key):
            raise BadKeys(f"{file}: a key is no Z85 text; `headstart keys` makes them")
    return public, secret


def _is_z85(key: bytes) -> bool:
    try:
        z85.decode(key)
    except (KeyError, ValueError, struct.error):
        return False
    return True


def unlock(
    socket: zmq.Socket[Any], endpoint: str, folder: Path | None, server: str = GATEWAY
) -> None:
    """Set an engine's keys on its socket before it connects to `server`. Raises `BadKeys`."""
    check_address(endpoint, folder)
    if folder is None:
        return
    pair = own_pair(folder)
    socket.curve_publickey, socket.curve_secretkey = pair.public, pair.secret
    socket.curve_serverkey = servers_key(folder, server)


class Accepted:
    """Answers ZAP for a server's socket: a key is good if it is in the folder now. A file that is
    no key, one that is being written perhaps, concerns no other; it is logged once. Raises
    `BadKeys` for one that is there at the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged: set[str] = set()
        accepted_engines(folder)

    def names(self) -> dict[bytes, str]:
        """Of the engines whose keys are there, by key."""
        bad: list[str] = []
        found = accepted_engines(self._folder, bad)
        for text in set(bad) - self._logged:
            log.error("an engine cannot connect: %s", text)
        self._logged = set(bad)
        return found

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by ZAP's thread."""
        return key in self.names()


class Handshakes:
    """Those of an engine's socket, which connects to `endpoint`, by way of its `monitor`.

    ZeroMQ does not connect again after a gateway has refused the key, but that may be added later,
    or the gateway's folder be unreadable for a moment: so `retry` does.
    """

    def __init__(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        self.monitor: zmq.Socket[bytes] = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._socket, self._endpoint = socket, endpoint
        self._retry_at_s: float | None = None
        self._told = False

    def read(self) -> bool:
        """Read one event: whether a gateway has completed a handshake."""
        # As `zmq.utils.monitor` reads it, which imports asyncio: event and value, then an address.
        (event, _), _ = _EVENT.unpack(self.monitor.recv()), self.monitor.recv()
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._told = False
            return True
        if not self._told:
            self._told = True
            log.error(
                "the gateway at %s does not accept this engine's key: copy its %s.key to "
                "%s/NAME.key in the gateway's engine_keys; trying again each %.0f s",
                *(self._endpoint, OWN, ENGINES, REFUSED_RETRY_S),
            )
        self._retry_at_s = time.monotonic() + REFUSED_RETRY_S
        return False

    def retry(self) -> None:
        """Connect again, if it is time for that. Call now and then."""
        if self._retry_at_s is None or time.monotonic() < self._retry_at_s:
            return
        self._retry_at_s = None
        with contextlib.suppress(zmq.ZMQError):  # it may have gone with its connection
            self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)

    def close(self) -> None:
        self._socket.disable_monitor()
        self.monitor.close(linger=0)


def check_address(endpoint: str, folder: Path | None) -> None:
    """Raises `BadKeys` for an address beyond this machine without keys: whoever reaches it could
    read and forge conversations."""
    if folder is None and not is_local(endpoint):
        raise BadKeys(
            f"{endpoint} can be reached from other machines, and the connection of an engine there "
            "would be neither encrypted nor authenticated: make keys with `headstart "
            "keys` and name their folder in engine_keys (docs/many-engines.md)"
        )


def is_local(endpoint: str) -> bool:
    """Whether an address is of this machine only: ipc, or tcp on loopback."""
    scheme, _, rest = endpoint.partition("://")
    if scheme in ("ipc", "inproc"):
        return True
    if scheme != "tcp":
        return False
    host = rest.rpartition(":")[0].strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def machine_id() -> str:
    """Which machine's monotonic clock this process reads: Linux's boot id; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{os.uname().nodename}" if hasattr(os, "uname") else ""
