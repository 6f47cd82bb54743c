"""Who may come in, by key, by origin and by the name the server is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart.gateway.auth.access import Access, Admitted, Refused, is_open_to_others, read_keys
from headstart.gateway.auth.client_secrets import ClientSecrets
from headstart.gateway.config import load
from headstart.gateway.errors import ConfigError
from headstart.gateway.settings import Settings


def having(**flags: Any) -> Settings:
    return load(flags=flags)


KEY, OTHER = "k" * 20, "o" * 20
WS = "/v1/realtime"


def access_of(**settings: Any) -> tuple[Access, ClientSecrets]:
    secrets = ClientSecrets()
    return Access.from_settings(having(**settings), secrets), secrets


def judge(access: Access, path: str = WS, **headers: str) -> Admitted | Refused:
    named = {"host": "127.0.0.1:8080", **headers}
    return access.judge(path, named, 0.0)


def bearer(key: str) -> str:
    return f"Bearer {key}"


def test_without_keys_everybody_on_this_machine_may_come_in() -> None:
    """With any key or none, as stock clients insist on sending one."""
    access, _ = access_of()
    for key in ("", "unused", KEY):
        assert judge(access, authorization=bearer(key)) == Admitted()


def test_with_keys_one_of_them_is_needed() -> None:
    """For sessions, secrets, and what tells of others; not for the page's files and health."""
    access, _ = access_of(api_keys=f"{KEY}, {OTHER}")
    guarded = (WS, "/realtime", "/v1/realtime/calls", "/v1/models", "/status", "/metrics")
    for path in guarded:
        assert isinstance(judge(access, path), Refused)
        assert judge(access, path, authorization=bearer("k" * 19)) == Refused(
            401, "invalid_api_key", "Incorrect API key provided."
        )
        assert isinstance(judge(access, path, authorization=bearer(KEY)), Admitted)
    for path in ("/", "/main.js", "/healthz"):
        assert judge(access, path) == Admitted()


def test_a_browser_brings_its_key_as_a_subprotocol() -> None:
    """It cannot set headers on a WebSocket."""
    access, _ = access_of(api_keys=KEY)
    offered = ["realtime", f"openai-insecure-api-key.{KEY}"]
    assert isinstance(access.judge(WS, {"host": "h"}, 0.0, offered), Admitted)
    assert isinstance(access.judge(WS, {"host": "h"}, 0.0, ["realtime"]), Refused)


def test_holders_are_told_apart_without_telling_their_keys() -> None:
    """Each key has a name of its own, which is not the key."""
    access, _ = access_of(api_keys=f"{KEY},{OTHER}")
    names = [judge(access, authorization=bearer(key)) for key in (KEY, OTHER, KEY)]
    holders = [n.key_id for n in names if isinstance(n, Admitted)]
    assert holders[0] == holders[2] != holders[1]
    assert KEY not in holders[0]


def test_a_secret_is_good_for_sessions_until_it_expires() -> None:
    """It counts for whose key it was asked for with."""
    access, secrets = access_of(api_keys=KEY)
    value = secrets.issue(None, 60, 1.0, key_id="ada")
    headers = {"host": "h", "authorization": bearer(value)}
    admitted = access.judge(WS, headers, 60.0)
    assert isinstance(admitted, Admitted)
    assert admitted.key_id == "ada"
    assert value not in admitted.secret
    assert access.judge(WS, headers, 61.0) == Refused(
        401, "invalid_api_key", "Incorrect API key provided."
    )


def test_a_secret_is_good_for_nothing_else() -> None:
    """Not for further secrets, nor for what tells of the server and of others; a server without
    keys tells everybody."""
    access, secrets = access_of(api_keys=KEY)
    headers = {"host": "h", "authorization": bearer(secrets.issue(None, 60, 0.0))}
    calls = [f"{prefix}/realtime{end}" for prefix in ("", "/v1") for end in ("", "/calls")]
    for path in (*calls, "/v1/realtime/calls/rtc_0/hangup"):
        assert isinstance(access.judge(path, headers, 0.0), Admitted), path
    closed = ["/status", "/metrics", "/models", "/v1/models", "/v1/realtime/client_secrets"]
    closed += ["/realtime/client_secrets", "/v1/else", "/v1/realtime/calls/a/b/hangup", "/statusx"]
    for path in closed:
        refused = access.judge(path, headers, 0.0)
        assert isinstance(refused, Refused), path
        assert (refused.status, refused.code) == (403, "secret_not_allowed")
    everybody, theirs = access_of()
    headers = {"host": "127.0.0.1", "authorization": bearer(theirs.issue(None, 60, 0.0))}
    assert isinstance(everybody.judge("/status", headers, 0.0), Admitted)


def test_who_may_end_what_who_has_opened() -> None:
    """The key's holder all of the key's and its secrets', a secret its own, another key nothing."""
    key, first, second = Admitted("ada"), Admitted("ada", "s1"), Admitted("ada", "s2")
    other, of_other = Admitted("bob"), Admitted("bob", "s1")
    assert all(key.owns(owner) for owner in (key, first, second))
    assert first.owns(first)
    for asker, owner in [(first, second), (first, key), (other, first), (of_other, first)]:
        assert not asker.owns(owner)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    """RFC 9110 §11.1; spaces around the key are none of it, and a key alone is one too."""
    access, _ = access_of(api_keys=KEY)
    for value in (f"{scheme} {KEY}", f" {scheme}   {KEY} ", KEY):
        assert isinstance(judge(access, authorization=value), Admitted)
    for value in (f"Basic {KEY}", f"{scheme}{KEY}", scheme, f"{scheme} {scheme} {KEY}"):
        assert isinstance(judge(access, authorization=value), Refused)


@given(st.dictionaries(st.sampled_from(["host", "origin", "authorization"]), st.text()), st.text())
@example({"origin": "http://[", "host": "h"}, "")
@example({"origin": "http://[::1", "host": "[::1"}, "")
@example({"origin": "null", "host": ""}, "")
@example({"authorization": "Bearer \udcff"}, "openai-insecure-api-key.ek_\udcff")
def test_no_header_raises(headers: dict[str, str], offered: str) -> None:
    """Whatever a request's headers say, it is admitted or refused; no nonsense is an origin."""
    for keys in ("", KEY):
        access, _ = access_of(api_keys=keys, host="0.0.0.0")
        verdict = access.judge(WS, headers, 0.0, [offered])
        if isinstance(verdict, Admitted) and "origin" in headers:
            assert headers["origin"].lower().endswith(f"://{headers['host'].lower()}")


def test_pages_of_other_sites_are_kept_out() -> None:
    """The server's own page is let in, programs without an origin too, other sites if allowed."""
    access, _ = access_of()
    assert judge(access, origin="http://127.0.0.1:8080") == Admitted()
    for origin in ("https://evil.example", "http://127.0.0.1:9999", "null", ""):
        refused = judge(access, origin=origin)
        assert isinstance(refused, Refused)
        assert (refused.status, refused.code) == (403, "origin_not_allowed")
    allowing, _ = access_of(allowed_origins="https://good.example https://two.example/")
    for origin in ("https://good.example", "https://GOOD.example", "https://two.example"):
        assert judge(allowing, origin=origin) == Admitted()
    assert isinstance(judge(allowing, origin="https://good.example.evil"), Refused)
    everybody, _ = access_of(allowed_origins="*")
    assert judge(everybody, origin="https://evil.example") == Admitted()


def test_an_open_server_answers_to_its_machine_s_own_names() -> None:
    """A name of somebody else's that points here is refused, or its page would count as ours; a
    server with keys, or for other machines, is asked by any name unless told which."""
    access, _ = access_of()
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:80"):
        assert judge(access, host=host) == Admitted()
    rebound = judge(access, host="evil.example:8080", origin="http://evil.example:8080")
    assert isinstance(rebound, Refused)
    assert rebound.status == 421
    named, _ = access_of(allowed_hosts="talk.example")
    assert judge(named, host="talk.example:443") == Admitted()
    assert isinstance(judge(named, host="127.0.0.1"), Refused)
    for settings in ({"api_keys": KEY}, {"host": "0.0.0.0"}):
        anywhere, _ = access_of(**settings)
        assert judge(anywhere, "/", host="talk.example") == Admitted()


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    """One a line, with comments; what is no key is told by name."""
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{KEY}\n\n  {OTHER}\n")
    assert read_keys(having(api_keys_file=file)) == [KEY, OTHER]
    file.write_text("# none\n")
    for wrong in ({"api_keys_file": file}, {"api_keys_file": tmp_path / "missing"}):
        with pytest.raises(ConfigError, match="api_keys_file"):
            read_keys(having(**wrong))
    for short in ("secret", "ek_" + "k" * 20):
        with pytest.raises(ConfigError, match="api_keys"):
            read_keys(having(api_keys=short))


def test_a_server_that_is_open_to_others_is_known() -> None:
    """So that it can be said at its start."""
    assert not is_open_to_others(having())
    assert is_open_to_others(having(host="0.0.0.0"))
    assert not is_open_to_others(having(host="0.0.0.0", api_keys=KEY))
    assert is_open_to_others(having(host="talk.example"))


def test_keys_are_not_shown_with_the_settings() -> None:
    """Logs and error reports print settings."""
    assert KEY not in repr(having(api_keys=KEY))
