import pytest

from gateway.origins import Origins


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "127.0.0.1:8080"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://localhost:8080", "localhost:8080"),
        ("http://LOCALHOST:8080", "localhost:8080"),
        ("https://192.0.2.7", "192.0.2.7"),
        ("https://192.0.2.7:443", "192.0.2.7"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_own_pages_and_other_clients_pass(origin: str | None, host: str) -> None:
    """No origin, or the one that the host header names, with or without its usual port."""
    assert Origins("", named_hosts=False).allows(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "127.0.0.1:8080"),
        ("http://127.0.0.1:9000", "127.0.0.1:8080"),
        ("null", "127.0.0.1:8080"),
        ("", "127.0.0.1:8080"),
        ("file://", "127.0.0.1:8080"),
        ("http://[", "127.0.0.1:8080"),
        ("http://a.example:99999", "a.example"),
        ("http://127.0.0.1:8080.evil.example", "127.0.0.1:8080"),
    ],
)
def test_other_pages_do_not(origin: str, host: str) -> None:
    """Another host or port, a sandboxed frame, a file, and what is no origin."""
    assert not Origins("", named_hosts=True).allows(origin, host)


def test_a_name_is_no_proof_without_keys() -> None:
    """DNS rebinding: a page whose name leads here is of our origin, and refused all the same."""
    page = "http://rebound.example:8080"
    assert not Origins("", named_hosts=False).allows(page, "rebound.example:8080")
    assert Origins("", named_hosts=True).allows(page, "rebound.example:8080")
    assert Origins(page, named_hosts=False).allows(page, "rebound.example:8080")


def test_listed_pages_pass() -> None:
    """By scheme, host and port; a star lets everybody in."""
    origins = Origins("https://a.example http://b.example:3000", named_hosts=False)
    assert origins.allows("https://A.example", "127.0.0.1")
    assert origins.allows("http://b.example:3000", "127.0.0.1")
    assert not origins.allows("http://a.example", "127.0.0.1")
    assert not origins.allows("https://sub.a.example", "127.0.0.1")
    assert Origins("*", named_hosts=False).allows("null", "127.0.0.1")
