"""Files from a model hub over HTTPS, resumed where an earlier attempt stopped.

The address is ENDPOINT/REPO/resolve/REVISION/FILE, where ENDPOINT is $HF_ENDPOINT if set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from headstart.engine.weights.errors import IntegrityError, SourceFailed
from headstart.engine.weights.manifest import File, HubSource

DEFAULT_ENDPOINT = "https://huggingface.co"

TRIES_MAX = 10
_TIMEOUT_S = 30.0


def url(source: HubSource, file: File) -> str:
    """The address of `file` of `source`."""
    endpoint = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    return f"{endpoint}/{source.repo}/resolve/{source.revision}/{file.name}"


def download(source: HubSource, file: File, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Download `file` to `target`, continuing behind the bytes already there, and again after a
    broken connection, as long as each of `TRIES_MAX` tries brings something.

    `on_bytes` receives the number of bytes in `target`. Raises `SourceFailed` if the hub is
    unreachable or refuses, and `IntegrityError` if it offers a file of another size, before
    anything is written. The caller checks the hash.
    """
    import httpx  # a tenth of a second, and only to fetch

    for tries_left in reversed(range(TRIES_MAX)):
        before_bytes = _size_bytes(target)
        try:
            _go_on(source, file, target, on_bytes)
            return
        except httpx.HTTPError as error:
            if tries_left == 0 or _size_bytes(target) <= before_bytes:
                told = f"{url(source, file)}: {type(error).__name__}: {error}"
                raise SourceFailed(told) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            told = f"{url(source, file)}: expected a URL, see HF_ENDPOINT: {error}"
            raise SourceFailed(told) from error


def _go_on(source: HubSource, file: File, target: Path, on_bytes: Callable[[int], None]) -> None:
    have_bytes = _size_bytes(target)
    if have_bytes == file.size_bytes:
        return
    if have_bytes > file.size_bytes:
        target.unlink()
        have_bytes = 0
    address = url(source, file)
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={have_bytes}-"}
    import httpx

    with httpx.stream(
        "GET", address, headers=headers, follow_redirects=True, timeout=_TIMEOUT_S
    ) as response:
        if response.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise SourceFailed(f"{address}: HTTP {response.status_code}")
        if response.status_code == HTTPStatus.OK:
            have_bytes = 0  # the server ignores ranges: it sends the whole file again
        offered = response.headers.get("Content-Length")
        if offered is not None and have_bytes + int(offered) != file.size_bytes:
            actual = have_bytes + int(offered)
            raise IntegrityError(address, "size in bytes", file.size_bytes, actual)
        with target.open("ab" if have_bytes else "wb") as stream:
            for chunk in response.iter_bytes():
                stream.write(chunk)
                have_bytes += len(chunk)
                on_bytes(have_bytes)
                if have_bytes > file.size_bytes:
                    break  # too long whatever follows; the size check says so


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
