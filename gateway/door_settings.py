"""What the settings say about the door: keys, TLS, and what an operator should be warned of."""

from __future__ import annotations

import ipaddress
import ssl
from typing import Any

from gateway.api_keys import parse_keys
from gateway.config import Settings
from gateway.errors import ConfigError


def read_keys(settings: Settings) -> list[str]:
    """All API keys. Raises `ConfigError` for a file that cannot be read and for keys too short."""
    texts = {"api_keys": settings.api_keys}
    if settings.api_keys_file is not None:
        try:
            texts[f"api_keys_file ({settings.api_keys_file})"] = settings.api_keys_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"api_keys_file: cannot be read: {error}"]) from error
    keys: list[str] = []
    for where, text in texts.items():
        try:
            keys += parse_keys(text)
        except ValueError as error:
            raise ConfigError([f"{where}: {error}"]) from error
    if settings.api_keys_file is not None and not keys:
        # Else an emptied file would open the server to everybody.
        raise ConfigError([f"api_keys_file ({settings.api_keys_file}): there is no key in it"])
    return keys


def tls_options(settings: Settings) -> dict[str, Any]:
    """uvicorn's options for TLS, or none. Raises `ConfigError` for a pair that does not work."""
    if settings.tls_cert is None or settings.tls_key is None:
        return {}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # SSLError is one
        pair = f"tls_cert ({settings.tls_cert}) and tls_key ({settings.tls_key})"
        raise ConfigError([f"{pair}: cannot be used: {error}"]) from error
    return {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}


def warnings(settings: Settings) -> list[str]:
    """What is allowed, but seldom meant."""
    if _is_local(settings.host):
        return []
    said = []
    if not settings.api_keys and settings.api_keys_file is None:
        said.append(
            f"listening on {settings.host} without api_keys: whoever reaches this machine can "
            f"open sessions (docs/security.md)"
        )
    elif settings.tls_cert is None:
        said.append(
            f"listening on {settings.host} without TLS: keys and speech cross the network in the "
            f"clear, unless a proxy in front has TLS (docs/security.md)"
        )
    return said


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
