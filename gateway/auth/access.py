"""Access control: API keys, ephemeral secrets, and pages of other sites.

A browser sends any page's requests to any address, from the visitor's network. So a request with an
`Origin` must come from this server's own page or from an allowed one. A server without keys that
listens only to its own machine answers only to the machine's own names: a foreign name that was
made to point here (DNS rebinding) is a page of another site too. Programs send no origin and are
admitted, with a key where keys are set.

No sockets here: `Access.judge` looks at a request's path and headers.

"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headstart.gateway.auth.client_secrets import PREFIX, ClientSecrets
from headstart.gateway.errors import ConfigError
from headstart.gateway.settings import Settings

KEY_SUBPROTOCOL = "openai-insecure-api-key."
KEY_CHARS_MIN = 16
ANY = "*"
OPEN_PATHS = frozenset({"/healthz", "/ready"})
# What needs a key, if there are keys: everything except the page's files, which contain no user
# data.
GUARDED = ("/v1/", "/realtime", "/models", "/status", "/metrics")
# What a secret may be used for: sessions, and ending its own calls.
SECRETS_PATHS = re.compile(r"(/v1)?/realtime(/calls(/[^/]+(/hangup)?)?)?")


@dataclass(frozen=True, slots=True)
class Admitted:
    """`key_id` identifies the key without revealing it; empty if none is required. `secret`
    identifies the ephemeral secret that was used instead of the key; empty if none was."""

    key_id: str = ""
    secret: str = ""

    def owns(self, owner: Admitted) -> bool:
        """Whether this client may end what `owner` has opened. The key's holder may end everything
        opened with the key or its secrets, a secret only what it has opened itself."""
        return self.key_id == owner.key_id and self.secret in ("", owner.secret)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request is refused, in HTTP terms."""

    status: int
    code: str
    message: str


class Access:
    """`keys`: the accepted keys; empty: none required. `origins`: of allowed pages besides our own;
    `hosts`: names that this server answers to; empty: all."""

    def __init__(
        self,
        keys: Iterable[str] = (),
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        secrets: ClientSecrets | None = None,
    ) -> None:
        self._digests = [_digest(key) for key in keys]
        self._origins = frozenset(_origin(origin) for origin in origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._secrets = secrets if secrets is not None else ClientSecrets()

    @classmethod
    def from_settings(cls, settings: Settings, secrets: ClientSecrets) -> Access:
        """Raises `ConfigError` for a key file that cannot be read, or contains no valid keys."""
        keys = read_keys(settings)
        hosts = settings.allowed_hosts.split()
        if not hosts and not keys and _is_loopback(settings.host):
            hosts = ["localhost", "127.0.0.1", "[::1]", settings.host]
        return cls(keys, settings.allowed_origins.split(), hosts, secrets)

    @property
    def wants_keys(self) -> bool:
        return bool(self._digests)

    @property
    def origins(self) -> frozenset[str]:
        """Of pages that may read responses, besides our own."""
        return self._origins

    def judge(
        self, path: str, headers: Mapping[str, str], now_s: float, subprotocols: Iterable[str] = ()
    ) -> Admitted | Refused:
        """`headers`: by lower-case name; `now_s`: of `gateway.runtime.clocks.since_boot_s`."""
        host = headers.get("host", "")
        if self._hosts and _name_of(host) not in self._hosts and host.lower() not in self._hosts:
            return Refused(
                421,
                "unknown_host",
                f"This server does not answer to {host!r}: name it in allowed_hosts.",
            )
        origin = headers.get("origin")
        if origin is not None and not self._may_come_from(origin, host):
            return Refused(
                403,
                "origin_not_allowed",
                f"Pages of {origin!r} may not use this server: name it in allowed_origins.",
            )
        if path in OPEN_PATHS or not path.startswith(GUARDED):
            return Admitted()
        return self._judge_key(path, key_of(headers, subprotocols), now_s)

    def _may_come_from(self, origin: str, host: str) -> bool:
        if ANY in self._origins or _origin(origin) in self._origins:
            return True
        # RFC 6454 §6.2: a scheme and an authority, nothing else. The received value is only
        # compared.
        _, _, authority = _origin(origin).partition("://")
        return authority != "" and authority == host.lower()

    def _judge_key(self, path: str, key: str, now_s: float) -> Admitted | Refused:
        if key.startswith(PREFIX):
            grant = self._secrets.find(key, now_s)
            if grant is None:
                return _wrong_key()
            if self.wants_keys and SECRETS_PATHS.fullmatch(path) is None:
                return Refused(
                    403,
                    "secret_not_allowed",
                    "An ephemeral secret opens sessions and ends its own calls; this takes an API "
                    "key.",
                )
            return Admitted(grant.key_id, _name(_digest(key)))
        if not self.wants_keys:
            return Admitted()
        digest = _digest(key)
        # Compare with all keys: the time taken must not reveal anything.
        found = [hmac.compare_digest(digest, known) for known in self._digests]
        return Admitted(_name(digest)) if any(found) else _wrong_key()


def key_of(headers: Mapping[str, str], subprotocols: Iterable[str] = ()) -> str:
    """The client's key, from the header, or for browsers from a subprotocol's name."""
    for offered in subprotocols:
        if offered.startswith(KEY_SUBPROTOCOL):
            return offered.removeprefix(KEY_SUBPROTOCOL)
    value = headers.get("authorization", "").strip()
    scheme, _, key = value.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else value  # RFC 9110 §11.1: case-insensitive


def read_keys(settings: Settings) -> list[str]:
    """All keys in the settings. Raises `ConfigError`."""
    keys = [key.strip() for key in settings.api_keys.split(",") if key.strip()]
    if settings.api_keys_file is not None:
        keys += _keys_in(settings.api_keys_file)
    for key in keys:
        if len(key) < KEY_CHARS_MIN:
            raise ConfigError(
                [
                    f"api_keys: a key has {len(key)} letters, at least {KEY_CHARS_MIN} are needed; "
                    f'python -c "import secrets; print(secrets.token_urlsafe(32))" makes one'
                ]
            )
        if key.startswith(PREFIX):
            raise ConfigError([f"api_keys: {PREFIX!r} begins ephemeral secrets, not keys"])
    return keys


def _keys_in(file: Path) -> list[str]:
    """One per line; empty lines and comments (#) are skipped."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"api_keys_file: {file} cannot be read: {error}"]) from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError([f"api_keys_file: {file} holds no keys, one a line"])
    return keys


def is_open_to_others(settings: Settings) -> bool:
    """Whether anybody who can reach this machine may use the server."""
    return not _is_loopback(settings.host) and not read_keys(settings)


def _wrong_key() -> Refused:
    return Refused(401, "invalid_api_key", "Incorrect API key provided.")


def _digest(key: str) -> bytes:
    # A WebSocket's headers contain surrogates for non-ASCII characters.
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


def _name(digest: bytes) -> str:
    """The identifier of a key or secret, which does not reveal it."""
    return digest.hex()[:16]


def _origin(origin: str) -> str:
    return origin.lower().rstrip("/")


def _name_of(host: str) -> str:
    """A Host header's name, without the port."""
    name, _, port = host.lower().rpartition(":")
    return name if port.isdecimal() and name else host.lower()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
