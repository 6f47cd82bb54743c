import pytest

from gateway.api_keys import ApiKeys, parse_keys

ONE, OTHER = "one-key-of-some-length", "another-key-of-some-length"


def test_a_key_names_its_holder() -> None:
    """Each key has a name of its own that does not contain it; others have none."""
    keys = ApiKeys([ONE, OTHER])
    holder, second = keys.holder_of(ONE), keys.holder_of(OTHER)
    assert holder is not None
    assert second is not None
    assert holder != second
    assert ONE not in holder
    for wrong in ("", ONE[:-1], ONE + "x", ONE.upper(), "\udcff"):
        assert keys.holder_of(wrong) is None


def test_no_key_is_kept_in_the_clear() -> None:
    """What a dump of the store shows is hashes."""
    assert ONE.encode() not in b"".join(ApiKeys([ONE])._digests)


def test_keys_are_read_from_lists_and_files() -> None:
    """Spaces, commas and lines part them; comments and empty lines count for nothing."""
    text = f"# ours\n{ONE}, {OTHER}\n\n  third-key-of-some-length  # the phone\n"
    assert parse_keys(text) == [ONE, OTHER, "third-key-of-some-length"]
    assert parse_keys("") == []


def test_a_key_too_short_to_be_secret_is_refused() -> None:
    """The error says which one, and not what it is."""
    with pytest.raises(ValueError, match="key 2 has 6 characters") as refused:
        parse_keys(f"{ONE} secret")
    assert "secret" not in str(refused.value).partition(":")[0]
