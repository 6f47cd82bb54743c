import functools

import msgspec
import pytest
from websockets.asyncio.client import connect

from headstart.engine import api
from headstart.gateway.auth.access import Admitted
from headstart.gateway.auth.share_domains import ShareDomains
from headstart.gateway.runtime.clocks import since_boot_s
from tests.gateway.shell_fakes import running_gateway, until

ADA, BOB = "ada-s-key-0123456789", "bob-s-key-0123456789"


def test_each_holder_has_a_domain_that_nobody_can_work_out() -> None:
    """The same for all of a holder's sessions; of another process, another one."""
    domains = ShareDomains(between_keys=False)
    assert domains.of("ada") == domains.of("ada") != domains.of("bob")
    assert len(domains.of("ada")) == 16
    assert domains.of("ada") != ShareDomains(between_keys=False).of("ada")
    assert b"ada" not in domains.of("ada")


def test_one_domain_for_all_where_that_is_wanted_or_nobody_has_a_key() -> None:
    """It is the empty one."""
    assert ShareDomains(between_keys=True).of("ada") == b""
    assert ShareDomains(between_keys=False).of(Admitted().key_id) == b""


def test_only_what_opens_a_session_is_changed() -> None:
    """All else goes through as it is, and so does the answer."""
    told: list[api.Command] = []

    def send(command: api.Command) -> bool:
        told.append(command)
        return False

    domains = ShareDomains(between_keys=False)
    within = domains.within_domain("ada", send)
    opened, closed = api.Open("s", "be brief", only_hears=True), api.Close("s")
    assert [within(opened), within(closed)] == [False, False]
    assert told == [msgspec.structs.replace(opened, share_domain=domains.of("ada")), closed]
    assert domains.within_domain("", send) is send


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[api.Open]:
    """What engines are told of sessions that begin."""
    told: list[api.Open] = []

    def send(_: object, command: api.Command) -> bool:
        if isinstance(command, api.Open):
            told.append(command)
        return True

    monkeypatch.setattr("headstart.gateway.engines.engines.Engines.send", send)
    return told


def has(opened: list[api.Open], number: int) -> bool:
    return len(opened) == number


@pytest.mark.parametrize("between_keys", [False, True])
async def test_sessions_of_a_key_share_and_those_of_two_do_not(
    between_keys: bool, opened: list[api.Open]
) -> None:
    """From the key in the handshake to what the engine is told; with `share_between_keys` all are
    alike."""
    keys = f"{ADA},{BOB}"
    async with running_gateway(api_keys=keys, share_between_keys=between_keys) as running:
        for number, key in enumerate((ADA, ADA, BOB), 1):
            headers = {"Authorization": f"Bearer {key}"}
            async with connect(running.ws_url, additional_headers=headers):
                await until(functools.partial(has, opened, number))
    first, second, third = (command.share_domain for command in opened)
    assert first == second
    assert (first != third) is (not between_keys)
    assert (first == b"") is between_keys


async def test_a_secrets_sessions_share_with_its_keys(opened: list[api.Open]) -> None:
    """An ephemeral secret is its key's for a while."""
    async with running_gateway(api_keys=ADA) as running:
        async with connect(running.ws_url, additional_headers={"Authorization": f"Bearer {ADA}"}):
            await until(lambda: len(opened) == 1)
        headers = {"host": "h", "authorization": f"Bearer {ADA}"}
        admitted = running.gateway.access.judge("/v1/realtime", headers, 0.0)
        assert isinstance(admitted, Admitted)
        value = running.gateway.secrets.issue(None, 60, since_boot_s(), key_id=admitted.key_id)
        headers = {"Authorization": f"Bearer {value}"}
        async with connect(running.ws_url, additional_headers=headers):
            await until(lambda: len(opened) == 2)
    assert opened[0].share_domain == opened[1].share_domain != b""


async def test_without_keys_there_are_no_domains(opened: list[api.Open]) -> None:
    """Everybody is alike, and shares."""
    async with running_gateway() as running, connect(running.ws_url):
        await until(lambda: len(opened) == 1)
    assert opened[0].share_domain == b""
