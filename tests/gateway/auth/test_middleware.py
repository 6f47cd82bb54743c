"""Authentication in front of a running server: real sockets, stock clients."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headstart.gateway.config import load
from headstart.gateway.errors import ConfigError
from headstart.gateway.server.main import check_certificate
from tests.gateway.shell_fakes import receive, running_gateway, until

KEY = "k" * 20
BEARER = {"Authorization": f"Bearer {KEY}"}


async def test_a_wrong_key_is_told_so() -> None:
    """Over HTTP 401; a socket gets an error event and is closed 3000, and no slot is taken."""
    async with running_gateway(api_keys=KEY) as running:
        async with httpx.AsyncClient(base_url=running.url) as http:
            refused = await http.get("/v1/models")
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert (await http.get("/v1/models", headers=BEARER)).status_code == 200
            assert (await http.get("/healthz")).status_code == 503  # there is no engine
        async with connect(running.ws_url) as socket:
            assert json.loads(await socket.recv())["error"]["code"] == "invalid_api_key"
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 3000
        assert not running.sessions
        async with connect(running.ws_url, additional_headers=BEARER) as socket:
            await receive(socket, "session.created")


async def test_a_foreign_page_gets_no_handshake() -> None:
    """403 and why; the server's own page and an allowed one are let in, and may read answers."""
    good, evil = "https://good.example", "https://evil.example"
    async with running_gateway(allowed_origins=good) as running:
        with pytest.raises(InvalidStatus) as refused:
            await connect(running.ws_url, origin=evil)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        assert b"allowed_origins" in (refused.value.response.body or b"")
        for origin in (good, running.url):
            async with connect(running.ws_url, origin=origin) as socket:  # type: ignore[arg-type]
                await receive(socket, "session.created")
        async with httpx.AsyncClient(base_url=running.url) as http:
            answer = await http.get("/v1/models", headers={"Origin": good})
            assert answer.headers["access-control-allow-origin"] == good
            preflight = {"Origin": good, "Access-Control-Request-Method": "POST"}
            asked = await http.options("/v1/realtime/calls", headers=preflight)
            assert asked.status_code == 200
            preflight["Origin"] = evil
            assert (await http.options("/v1/realtime/calls", headers=preflight)).status_code == 400


async def test_every_answer_has_its_policies() -> None:
    """The page's, a file's, a refusal's and that of what is not there: nothing but the page's own
    files runs in it, nobody frames it, and it talks to this server only."""
    async with (
        running_gateway(api_keys=KEY) as running,
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        for path in ("/", "/main.js", "/nowhere", "/status", "/healthz"):
            told = (await http.get(path)).headers
            assert told["x-content-type-options"] == "nosniff"
            assert told["x-frame-options"] == "DENY"
            assert told["referrer-policy"] == "no-referrer"
            assert told["permissions-policy"].startswith("camera=(self), microphone=(self)")
            parts = told["content-security-policy"].split("; ")
            policy = dict(part.split(" ", 1) for part in parts)
            assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
            assert policy["script-src"] == "'self'"
            host = running.url.removeprefix("http://")
            assert policy["connect-src"] == f"'self' ws://{host} wss://{host}"
        strange = await http.get("/", headers={"Host": "a; script-src *"})
        assert "script-src *" not in strange.headers["content-security-policy"]


async def test_there_is_no_socket_but_the_sessions() -> None:
    """At any other address 404, and nothing is an error of ours."""
    async with running_gateway() as running:
        for path in ("/", "/main.js", "/nowhere", "/v1/realtime/calls"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(running.url.replace("http", "ws") + path)
            assert refused.value.response.status_code == 404


async def test_one_key_has_its_share_of_the_seats() -> None:
    """Its third session gets a 429 with the reason and when to come again; another key's does not,
    and a slot that was left can be had."""
    other = "o" * 20
    async with (
        running_gateway(api_keys=f"{KEY},{other}", max_sessions_per_key=2) as running,
        connect(running.ws_url, additional_headers=BEARER),
    ):
        async with connect(running.ws_url, additional_headers=BEARER):
            with pytest.raises(InvalidStatus) as refused:
                await connect(running.ws_url, additional_headers=BEARER)
            response = refused.value.response
            assert response.status_code == 429
            assert response.headers["Retry-After"]
            assert b"this key has 2 sessions already" in (response.body or b"")
            theirs = {"Authorization": f"Bearer {other}"}
            async with connect(running.ws_url, additional_headers=theirs) as socket:
                await receive(socket, "session.created")
        await until(lambda: len(running.gateway.runners) == 1)
        async with connect(running.ws_url, additional_headers=BEARER) as socket:
            await receive(socket, "session.created")


async def test_who_sends_nothing_is_let_go() -> None:
    """After `idle_s`, with the reason; who sends something in time stays."""
    async with running_gateway(idle_s=0.5) as running, connect(running.ws_url) as socket:
        for _ in range(4):
            await socket.send("hello")
            await receive(socket, "echo")
            await until(lambda: True)
        await socket.wait_closed()
        assert socket.close_code == 1001
        assert socket.close_reason == "nothing was sent for 0.5 s"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(secret, hashes.SHA256())
    )
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(built.public_bytes(Encoding.PEM))
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert, key


async def test_sessions_over_tls(certificate: tuple[Path, Path]) -> None:
    """With a certificate the server speaks https and wss, and nothing else."""
    cert, key = certificate
    trust = ssl.create_default_context(cafile=str(cert))
    async with running_gateway(tls_cert=cert, tls_key=key) as running:
        assert running.url.startswith("https://")
        async with httpx.AsyncClient(verify=trust) as http:
            assert (await http.get(f"{running.url}/v1/models")).status_code == 200
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):  # no silence
                await http.get(running.url.replace("https", "http"))
        async with connect(running.ws_url, ssl=trust) as socket:
            await receive(socket, "session.created")


def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """Before anything starts, with the files' names; and one without its key is no certificate."""
    (tmp_path / "a.pem").write_text("no certificate")
    for name in ("a.pem", "missing.pem"):
        file = tmp_path / name
        with pytest.raises(ConfigError, match=name):
            check_certificate(load(flags={"tls_cert": file, "tls_key": file}))
    with pytest.raises(ConfigError, match="go together"):
        load(flags={"tls_cert": tmp_path / "a.pem"})
