"""What is found out at start, and what is refused then, by name."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headstart.engine.backends.llm_server import errors
from headstart.engine.backends.llm_server.capabilities import PromptForm, TokenIds
from headstart.engine.backends.llm_server.probe import PROBE_TOKENS, block_of, find_out, split_url
from headstart.engine.errors import BadSettings
from tests.engine.backends.llm_server.bench import scripted
from tests.engine.backends.llm_server.scripted_server import CHAT, LLAMACPP, OPENAI, VLLM


class Bytes:
    """The fakes' tokenizer."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def encode(self, text: str) -> list[int]:
        return [byte + self.shift for byte in text.encode()]

    def decode(self, tokens: Any) -> str:
        return bytes(tokens).decode()


def render(messages: list[dict[str, str]]) -> list[int]:
    return [byte for message in messages for byte in message["content"].encode()]


def test_the_block_of_a_cache_shows_in_what_was_cached() -> None:
    """Each size leaves another number of cached tokens; a number that none explains tells none."""
    for size in (1, 2, 4, 8, 16, 32, 64, 128):
        assert block_of(PROBE_TOKENS, (PROBE_TOKENS - 1) // size * size) == size
    assert block_of(PROBE_TOKENS, 100) is None


def test_vllm_can_do_everything() -> None:
    """Ids in and out, log probabilities, cached tokens, blocks, its context, the same tokenizer."""
    with scripted(dialect=VLLM, block=16) as server:
        found = find_out(server.url, None, Bytes())
    assert (found.prompt, found.token_ids) == (PromptForm.IDS, TokenIds.FIELD)
    assert (found.logprobs, found.tells_cached, found.extensions) == (20, True, True)
    assert (found.block_tokens, found.block_measured) == (16, True)
    assert (found.context_tokens, found.context_measured) == (4096, True)
    assert found.tokenizer_checked
    assert found.warms_up
    assert found.reply_model == "scripted"


def test_llamacpp_tells_ids_with_its_log_probabilities() -> None:
    """Its cache counts in tokens, its context is among its properties, and it tells timings."""
    with scripted(dialect=LLAMACPP, block=1, context_tokens=2048) as server:
        found = find_out(server.url, None, Bytes())
    assert (found.prompt, found.token_ids) == (PromptForm.IDS, TokenIds.LOGPROBS)
    assert (found.block_tokens, found.context_tokens) == (1, 2048)
    assert found.tells_timings


def test_a_plain_server_gets_text() -> None:
    """No token ids, no fields beyond OpenAI's, nothing about its cache or its context."""
    with scripted(dialect=OPENAI) as server:
        found = find_out(server.url, None, Bytes())
    assert (found.prompt, found.token_ids) == (PromptForm.TEXT, TokenIds.TEXT)
    assert not found.extensions
    assert not found.tells_cached
    assert not found.context_measured
    assert found.warms_up


def test_a_chat_server_gets_whole_messages() -> None:
    """It has no completions; only one that tells of its cache gets messages ahead of time."""
    for tells in (True, False):
        with scripted(dialect=CHAT, render=render, tells_cached=tells) as server:
            found = find_out(server.url, None, Bytes())
        assert found.prompt is PromptForm.MESSAGES
        assert found.warms_up is tells
        ahead = "while the user speaks" if tells else "whole messages, at the endpoint"
        assert found.facts()["prefill"] == ahead


def test_without_a_tokenizer_messages_are_sent() -> None:
    """Prompts cannot be written then."""
    with scripted(dialect=VLLM, render=render) as server:
        assert find_out(server.url, None, None).prompt is PromptForm.MESSAGES


def test_another_tokenizer_is_refused() -> None:
    """Detected by a round trip."""
    with scripted() as server, pytest.raises(errors.LlmTokenizerDiffers, match="--tokenizer") as no:
        find_out(server.url, None, Bytes(shift=1))
    assert no.value.code == "llm_tokenizer_differs"


def test_models_are_named_or_the_only_one() -> None:
    """Several without a name, and a name that is not there, are refused with those that are."""
    with scripted(models=("a", "b")) as server:
        assert find_out(server.url, "b", Bytes()).model == "b"
        with pytest.raises(errors.LlmModelUnknown, match="name one with --llm-model: a, b"):
            find_out(server.url, None, Bytes())
        with pytest.raises(errors.LlmModelUnknown, match="no model 'c'; it serves: a, b"):
            find_out(server.url, "c", Bytes())


def test_a_wrong_address_is_told() -> None:
    """Another program answers there, or a path is too long: the address that was asked, and what
    one looks like."""
    with scripted(models=()) as server:
        url = f"{server.url}/v1/chat/completions"
        with pytest.raises(errors.LlmModelUnknown) as raised:
            find_out(url, None, Bytes())
    assert f"at {url} lists no model under {url}/v1/models" in str(raised.value)
    assert "as http://127.0.0.1:8000" in str(raised.value)
    assert url not in raised.value.public_message


def test_a_wrong_key_is_refused() -> None:
    """And a missing one is told from it."""
    with scripted(key="right") as server:
        assert find_out(server.url, None, Bytes(), "right").model == "scripted"
        with pytest.raises(errors.LlmKeyRefused, match="refused the key"):
            find_out(server.url, None, Bytes(), "wrong")
        with pytest.raises(errors.LlmKeyRefused, match="--llm-key-env"):
            find_out(server.url, None, Bytes())


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8000", "ftp://host/", "http://", "http://h:99999999"),
        *("https://user:pw@host", "http://" + "a" * 70 + ".example"),
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """By the setting's name."""
    with pytest.raises(BadSettings, match="setting llm must be an http"):
        split_url(url)


def test_urls_may_end_in_v1() -> None:
    """As OpenAI's clients have them, or not."""
    for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert split_url(url) == "http://h:1"
    assert split_url("https://h/some/where/v1") == "https://h/some/where"


def test_nobody_at_the_url_is_waited_for_and_told() -> None:
    """A server may take minutes to start; but not for ever."""
    seen: list[str] = []
    with pytest.raises(errors.LlmUnreachable, match="no LLM server answers at http"):
        find_out(
            "http://127.0.0.1:9", None, None, report=lambda what, *_: seen.append(what), wait_s=1.5
        )
    assert "waiting for the LLM server (llm_unreachable)" in seen


def test_a_web_page_is_no_llm_server() -> None:
    """Its reply is garbage, which is told."""
    with scripted() as server:
        page: Any = ["a", "list"]
        server._get = lambda path: (200, page)  # type: ignore[method-assign]
        with pytest.raises(errors.LlmGarbage, match="not a JSON object"):
            find_out(server.url, None, Bytes())


def test_a_certificate_that_cannot_be_verified_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Self-signed, and not among the trusted ones: at once, without waiting. Trusted: good."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem, private)
    with scripted(tls=tls) as server:
        with pytest.raises(errors.LlmTlsError, match="certificate"):
            find_out(server.url, None, Bytes())
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert find_out(server.url, None, Bytes()).model == "scripted"


@contextlib.contextmanager
def endless(piece: bytes, pause_s: float) -> Iterator[str]:
    """The URL of a server whose replies never end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not over.wait(pause_s):
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_reply_without_end_is_cut_off() -> None:
    """By its size, and by its time, however often a byte comes."""
    with endless(b"x" * (1 << 20), 0.0) as url, pytest.raises(errors.LlmGarbage, match="more than"):
        find_out(url, None, None, wait_s=0.0)
    with endless(b" ", 0.01) as url, pytest.raises(errors.LlmStalled):
        find_out(url, None, None, wait_s=0.0, reply_wait_s=0.5)
