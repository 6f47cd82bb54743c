import asyncio
import datetime
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect

from gateway.config import load
from gateway.door_settings import read_keys, tls_options, warnings
from gateway.errors import ConfigError
from tests.gateway.shell_fakes import receive, running_gateway

KEY = "the-key-of-this-test"


def write_pair(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost's own making, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


def test_keys_come_from_the_setting_and_the_file(tmp_path: Path) -> None:
    """Both count; none at all is an open server."""
    file = tmp_path / "keys"
    file.write_text("# phone\nsecond-key-of-this-test\n")
    settings = load(flags={"api_keys": KEY, "api_keys_file": file})
    assert read_keys(settings) == [KEY, "second-key-of-this-test"]
    assert read_keys(load()) == []


@pytest.mark.parametrize("content", [None, "", "# nothing\n", "short\n"])
def test_a_key_file_that_would_open_the_server_is_an_error(
    tmp_path: Path, content: str | None
) -> None:
    """Missing, empty, only comments, too short: named, and never taken for "no keys"."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match="api_keys_file"):
        read_keys(load(flags={"api_keys_file": file}))


def test_tls_needs_a_pair_that_fits(tmp_path: Path) -> None:
    """One file alone, a missing one and a key of another certificate are named errors."""
    cert, key = write_pair(tmp_path)
    (tmp_path / "other").mkdir()
    other_key = write_pair(tmp_path / "other")[1]
    assert tls_options(load()) == {}
    assert tls_options(load(flags={"tls_cert": cert, "tls_key": key}))["ssl_certfile"] == cert
    with pytest.raises(ConfigError, match="give both, or neither"):
        load(flags={"tls_cert": cert})
    for wrong in (other_key, tmp_path / "none.pem"):
        with pytest.raises(ConfigError, match="tls_cert"):
            tls_options(load(flags={"tls_cert": cert, "tls_key": wrong}))


async def test_sessions_and_pages_over_tls(tmp_path: Path) -> None:
    """https and wss work with the pair, and plain HTTP gets nothing."""
    cert, key = write_pair(tmp_path)
    context = ssl.create_default_context(cafile=cert)
    async with running_gateway(tls_cert=cert, tls_key=key) as running:
        port = running.url.rpartition(":")[2]
        async with httpx.AsyncClient(verify=context) as http:
            assert (await http.get(f"https://localhost:{port}/status")).status_code == 200
        async with connect(f"wss://localhost:{port}/v1/realtime", ssl=context) as socket:
            await receive(socket, "session.created")
        async with httpx.AsyncClient() as http:
            with pytest.raises(httpx.HTTPError):
                async with asyncio.timeout(10):
                    await http.get(running.url)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, ""),
        ({"host": "localhost"}, ""),
        ({"host": "::1"}, ""),
        ({"host": "0.0.0.0"}, "without api_keys"),
        ({"host": "example.org"}, "without api_keys"),
        ({"host": "0.0.0.0", "api_keys": KEY}, "without TLS"),
    ],
)
def test_an_open_server_is_warned_of(flags: dict[str, str], said: str) -> None:
    """On this machine only: nothing. Elsewhere: no keys, or keys in the clear."""
    warned = warnings(load(flags=flags))
    assert [said in warning for warning in warned] == ([True] if said else [])
