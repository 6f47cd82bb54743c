"""Files from a model hub over HTTPS, resumed where an earlier attempt stopped.

The address is ENDPOINT/REPO/resolve/REVISION/FILE, where ENDPOINT is $HF_ENDPOINT if set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import httpx

from headstart.engine.weights.errors import IntegrityError, SourceFailed
from headstart.engine.weights.manifest import File, HubSource

DEFAULT_ENDPOINT = "https://huggingface.co"

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30.0


def url(source: HubSource, file: File) -> str:
    """The address of `file` of `source`."""
    endpoint = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    return f"{endpoint}/{source.repo}/resolve/{source.revision}/{file.name}"


def download(source: HubSource, file: File, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Download `file` to `target`, continuing behind the bytes already there.

    `on_bytes` receives the number of bytes in `target`. Raises `SourceFailed` if the hub is
    unreachable or refuses, and `IntegrityError` if it offers a file of another size, before
    anything is written. The caller checks the hash.
    """
    have_bytes = target.stat().st_size if target.exists() else 0
    if have_bytes == file.size_bytes:
        return
    if have_bytes > file.size_bytes:
        target.unlink()
        have_bytes = 0
    address = url(source, file)
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={have_bytes}-"}
    try:
        with httpx.stream(
            "GET", address, headers=headers, follow_redirects=True, timeout=_TIMEOUT_S
        ) as response:
            if response.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                raise SourceFailed(f"{address}: HTTP {response.status_code}")
            if response.status_code == HTTPStatus.OK:
                have_bytes = 0  # the server ignores ranges and sends the whole file
            offered = response.headers.get("Content-Length")
            if offered is not None and have_bytes + int(offered) != file.size_bytes:
                actual = have_bytes + int(offered)
                raise IntegrityError(address, "size in bytes", file.size_bytes, actual)
            with target.open("ab" if have_bytes else "wb") as stream:
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    stream.write(chunk)
                    have_bytes += len(chunk)
                    on_bytes(have_bytes)
                    if have_bytes > file.size_bytes:
                        break  # too long; the size check will report it
    except httpx.HTTPError as error:
        raise SourceFailed(f"{address}: {type(error).__name__}: {error}") from error
