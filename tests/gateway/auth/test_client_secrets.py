from headstart.gateway.auth.client_secrets import SECRETS_MAX, ClientSecrets


def test_a_secret_stands_for_its_session_until_it_expires() -> None:
    """Found as often as one likes before its time, not at it, and never another's."""
    secrets = ClientSecrets()
    value = secrets.issue({"type": "realtime"}, 600, 1000.5)
    for now_s in (1000.5, 1600.4):
        grant = secrets.find(value, now_s)
        assert grant is not None
        assert grant.session == {"type": "realtime"}
    assert secrets.find(value, 1600.5) is None
    assert secrets.find(value + "0", 1000.5) is None
    assert secrets.find("", 1000.5) is None


def test_secrets_are_bounded() -> None:
    """The one that expires first gives way; expired ones go before that."""
    secrets = ClientSecrets()
    first = secrets.issue(None, 10, 0)
    last = ""
    for _ in range(SECRETS_MAX):
        last = secrets.issue(None, 7200, 0)
    assert len(secrets) == SECRETS_MAX
    assert secrets.find(first, 1) is None
    assert secrets.find(last, 1) is not None
    secrets.issue(None, 10, 8000)
    assert len(secrets) == 1


def test_no_secret_is_kept_in_the_clear() -> None:
    """What a dump of the store shows is hashes."""
    secrets = ClientSecrets()
    value = secrets.issue(None, 10, 0)
    assert value[3:].encode() not in b"".join(secrets._grants)
    assert value.startswith("ek_")


def test_a_secret_names_its_gateway() -> None:
    """Of several: for a load balancer to bring it back. The name is part of the secret."""
    secrets = ClientSecrets("gw-1")
    value = secrets.issue(None, 10, 0)
    assert value.startswith("ek_gw-1_")
    assert secrets.find(value, 1) is not None
    assert secrets.find(value.replace("gw-1", "gw-2"), 1) is None
    assert secrets.find(value.replace("gw-1_", ""), 1) is None
