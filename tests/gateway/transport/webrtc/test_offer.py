"""Offers as browsers make them, and as nobody should."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import random
import re
import socket

import pytest
from aioice.ice import get_host_addresses
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from headstart.gateway.transport.webrtc import call as calls
from headstart.gateway.transport.webrtc.call import Call
from headstart.gateway.transport.webrtc.call_metrics import CallMetrics
from headstart.gateway.transport.webrtc.offer import (
    CANDIDATES_MAX,
    LINES_MAX,
    NAMES_MAX,
    SECTIONS_MAX,
    BadOffer,
    checked,
    may_be_sent_to,
)
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    connect,
    offer_of,
    post_offer,
    prepared,
)

CONNECT_WAIT_S = 5.0
DIGEST = ":".join(["AB"] * 32)
OFFER = f"""v=0
o=- 46117 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1
a=msid-semantic: WMS *
m=audio 9 UDP/TLS/RTP/SAVPF 111 0
c=IN IP4 0.0.0.0
a=rtcp:9 IN IP4 0.0.0.0
a=ice-ufrag:4ZcD
a=ice-pwd:2/1muCWoOi3uLifh0NuRHlaa
a=ice-options:trickle
a=fingerprint:sha-256 {DIGEST}
a=setup:actpass
a=mid:0
a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level
a=sendrecv
a=rtcp-mux
a=rtpmap:111 opus/48000/2
a=fmtp:111 minptime=10;useinbandfec=1
a=rtpmap:0 PCMU/8000
a=ssrc:3570614608 cname:4TOk42mSjXCkVIa6
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=ice-ufrag:4ZcD
a=ice-pwd:2/1muCWoOi3uLifh0NuRHlaa
a=fingerprint:sha-256 {DIGEST}
a=setup:actpass
a=mid:1
a=sctp-port:5000
a=max-message-size:262144
"""
CANDIDATE = "a=candidate:1 1 udp 2113937151 192.0.2.7 50000 typ host"


def offering(*candidates: str) -> str:
    """The offer with these in its first section."""
    lines = "".join(f"{candidate}\n" for candidate in candidates)
    return OFFER.replace("a=mid:0\n", f"a=mid:0\n{lines}a=end-of-candidates\n")


def test_a_browsers_offer_is_as_it_was() -> None:
    """Line by line; it takes one way through the network."""
    offer = checked(offering(CANDIDATE))
    assert offer.sdp.splitlines() == offering(CANDIDATE).splitlines()
    assert (offer.transports, offer.dropped) == (1, 0)
    apart = checked(OFFER.replace("a=group:BUNDLE 0 1\n", ""))
    assert apart.transports == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m=", "x=", "no media section"),
        (rf"a=fingerprint:sha-256 {DIGEST}\n", "", r"section 1 \(audio\).*a=fingerprint"),
        ("a=fingerprint:sha-256", "a=fingerprint:md5", "a=fingerprint, of sha-256"),
        (DIGEST, DIGEST[:-3], "no sha-256 digest"),
        ("a=setup:actpass\n", "", "a=setup"),
        ("a=setup:actpass\n", "a=setup:holdconn\n", "malformed"),
        ("a=ice-ufrag:4ZcD\n", "", "a=ice-ufrag"),
        ("a=ice-ufrag:4ZcD", "a=ice-ufrag:4", "a=ice-ufrag"),
        ("a=ice-pwd:2/1muCWoOi3uLifh0NuRHlaa\n", "", "a=ice-pwd"),
        ("a=rtcp-mux\n", "", "a=rtcp-mux"),
        ("a=mid:1\n", "", "a=mid"),
        ("a=mid:1", "a=mid:0", "same a=mid"),
        ("BUNDLE 0 1", "BUNDLE 0 7", "not there"),
        ("BUNDLE 0 1", "BUNDLE 0 0", "one twice"),
        ("a=sctp-port:5000\n", "", "a=sctp-port"),
        ("a=sctp-port:5000", "a=sctp-port:70000", "a=sctp-port"),
        ("webrtc-datachannel", "9" * 5000, "a=sctp-port"),
        ("UDP/DTLS/SCTP", "DTLS/SCTP", "a=sctp-port"),
        ("m=application", "m=text", "no such kind"),
        ("SAVPF 111 0", "SAVPF 200 0", "payload types"),
        ("a=rtpmap:0 ", "a=rtpmap:300 ", "payload types"),
        ("extmap:1 ", "extmap:999 ", "extmap"),
        ("ssrc:3570614608", "ssrc:99999999999", "ssrc"),
        ("s=-", "s=\x1b[2J", "control characters"),
        ("a=ice-options:trickle\n", "a=x\n" * LINES_MAX, "lines"),
        ("(?s)m=application.*", "m=application 9 x\n" * SECTIONS_MAX, "media sections"),
        ("a=mid:0", "a=mid:0\na=candidate:1 1 udp", "no candidate"),
        ("a=mid:0", "a=mid:0\n" + CANDIDATE.replace("50000", "9" * 5000), "no candidate"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, said: str) -> None:
    """Before anything is opened."""
    wrong = re.sub(old, lambda _: new, OFFER)
    assert wrong != OFFER
    if "webrtc-datachannel" in old:
        wrong = wrong.replace("UDP/DTLS/SCTP", "DTLS/SCTP")
    with pytest.raises(BadOffer, match=said):
        checked(wrong)


def test_no_direction_is_both() -> None:
    """RFC 8866 §6.7; the session's own one, if it has one."""
    missing = OFFER.replace("a=sendrecv\n", "")
    assert "a=sendrecv" in checked(missing).sdp
    of_session = missing.replace("t=0 0\n", "t=0 0\na=sendonly\n")
    sections = checked(of_session).sdp.split("m=")
    assert "a=sendonly" in sections[1]
    assert "a=send" not in sections[2]


def kept(*candidates: str, private: bool = True) -> int:
    offer = checked(offering(*candidates), private)
    assert offer.dropped + offer.sdp.count("a=candidate:") == len(candidates)
    # All that the peer has are those that are left, or the peer may still come from another.
    assert ("a=end-of-candidates" in offer.sdp) == (offer.dropped == 0)
    return offer.sdp.count("a=candidate:")


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (("typ host", "typ srflx raddr 0.0.0.0 rport 0"), True),
        (("typ host", "typ relay"), True),
        (("typ host", "typ prflx"), False),
        (("1 udp", "2 udp"), False),
        ((" udp ", " tcp "), False),
        ((" 50000 ", " 0 "), False),
        ((" 50000 ", " 53 "), False),
        ((" 50000 ", " 443 "), True),
        ((" 50000 ", " 65536 "), False),
        (("192.0.2.7", "somebody.example"), False),
        (("192.0.2.7", "a.b.local"), False),
        (("192.0.2.7", "0.0.0.0"), False),
        (("192.0.2.7", "224.0.0.251"), False),
        (("192.0.2.7", "255.255.255.255"), False),
        (("192.0.2.7", "fe80::1%eth0"), False),
        (("192.0.2.7", "ff02::1"), False),
        (("192.0.2.7", "2001:db8::7"), True),
    ],
)
def test_what_cannot_be_called_is_not(change: tuple[str, str], allowed: bool) -> None:
    """It is dropped and counted, and the rest is called."""
    assert kept(CANDIDATE, CANDIDATE.replace(*change)) == 1 + allowed


def test_an_offer_without_candidates_waits_for_the_peer() -> None:
    """Its end is no reason to give up: a peer behind a wall calls us."""
    assert "a=end-of-candidates" not in checked(offering()).sdp


def test_candidates_are_bounded() -> None:
    """In all sections together; names have a bound of their own, and none but `.local` is one."""
    many = [CANDIDATE.replace("50000", str(50_000 + n)) for n in range(900)]
    assert kept(*many) == CANDIDATES_MAX
    names = [CANDIDATE.replace("192.0.2.7", f"name-{n % 9}.local") for n in range(18)]
    assert kept(*names) == 2 * NAMES_MAX
    assert kept(*names, private=False) == 0


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::8.8.8.8", True),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.1.2.3", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("2002:0a00:0001::1", False),
        ("224.0.0.1", False),
        ("::ffff:224.0.0.1", False),
    ],
)
def test_private_addresses_can_be_kept_out(address: str, is_public: bool) -> None:
    """Of IPv4, of IPv6, and of IPv4 within IPv6 in each of its ways."""
    assert may_be_sent_to(ipaddress.ip_address(address), private=False) == is_public
    assert kept(CANDIDATE.replace("192.0.2.7", address), private=False) == is_public


LINE = st.sampled_from(OFFER.splitlines())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("dxrn") | LINE | st.text(max_size=9))),
    st.booleans(),
)
def test_whatever_is_changed_is_refused_or_taken(
    changes: list[tuple[int, str]], private: bool
) -> None:
    """Lines that are missing, twice, out of order, or garbled: `BadOffer` and nothing else."""
    lines = offering(CANDIDATE).splitlines()
    for at, change in changes:
        at %= len(lines)
        if change == "d" and len(lines) > 1:
            del lines[at]
        elif change == "x":
            lines[at] = lines[at][: len(lines[at]) // 2]
        elif change == "r":
            lines[at], lines[-1] = lines[-1], lines[at]
        elif change == "n":
            lines[at] = re.sub(r"\d+", "99999999999999999999", lines[at])
        else:
            lines.insert(at, change)
    with contextlib.suppress(BadOffer):
        checked("\n".join(lines), private)


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What asyncio and the rest have to complain about once nobody holds a task any more."""
    gc.collect()
    return [r.getMessage() for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")]


async def test_a_changed_offer_is_refused_or_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Two hundred changes of a real one: what is taken by the look at it is answered by aiortc, or
    refused; no task is left that fails behind it."""
    async with prepared(Microphone(), Camera()) as peer:
        real = (await offer_of(peer.pc)).splitlines()
    rng, metrics = random.Random(7), CallMetrics(CollectorRegistry())
    answered = 0
    for number in range(200):
        lines = list(real)
        at = rng.randrange(len(lines))
        match number % 4:
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines[at] = re.sub(r"\d+", str(rng.choice([0, 1, 255, 1 << 40])), lines[at])
            case _:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        with contextlib.suppress(BadOffer):
            call = Call("rtc_0", [], metrics, checked("\r\n".join(lines) + "\r\n").sdp)
            await call.answer()
            await call._close_peer()
            answered += 1
    await asyncio.sleep(0.1)
    assert 20 < answered < 180
    assert troubles(caplog) == []


async def test_an_offer_without_one_of_its_lines_is_refused_or_works(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of line in turn: 400 with its reason, or a call that connects and talks."""
    async with prepared(Microphone()) as peer:
        real = (await offer_of(peer.pc)).splitlines()
    kinds = sorted({re.match(r"\w=([a-z-]+:?)?", line).group() for line in real})  # type: ignore[union-attr]
    worked, refused = set(), set()
    monkeypatch.setattr(calls, "CONNECT_WAIT_S", CONNECT_WAIT_S)
    async with running_gateway(max_sessions=100) as running:
        for kind in kinds:

            def without(sdp: str, kind: str = kind) -> str:
                left = [line for line in sdp.splitlines() if not line.startswith(kind)]
                return "".join(f"{line}\r\n" for line in left)

            async with prepared(Microphone()) as peer:
                response = await post_offer(peer, running.url, edit=without)
                if response.status_code == 400:
                    assert response.json()["error"]["message"]
                    refused.add(kind)
                    continue
                assert response.status_code == 201, (kind, response.text)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONNECT_WAIT_S):
                        await connect(peer, response.headers["location"], response.text)
                        await peer.event("session.created")
                        worked.add(kind)
        await until(lambda: not running.gateway.runners)
    assert {"o=-", "t=", "a=candidate:", "a=end-of-candidates", "a=sendrecv", "a=ssrc:"} <= worked
    assert {"a=fingerprint:", "a=setup:", "a=ice-pwd:", "a=ice-ufrag:", "a=sctp-port:"} <= refused
    # Without it the peer's own description is another than the one we had; its call is given up.
    assert set(kinds) - worked - refused <= {"a=group:"}
    assert troubles(caplog) == []


class Sink(asyncio.DatagramProtocol):
    """Counts what comes to it."""

    def __init__(self) -> None:
        self.packets = 0

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.packets += 1


def naming(sdp: str, candidates: list[str]) -> str:
    """An offer with these candidates in place of its own."""
    lines = [line for line in sdp.splitlines() if not line.startswith("a=candidate:")]
    at = next(number for number, line in enumerate(lines) if line.startswith("a=mid:"))
    return "".join(f"{line}\r\n" for line in [*lines[:at], *candidates, *lines[at:]])


async def packets_of(running: RunningGateway, sinks: int, wait_s: float) -> tuple[int, int]:
    """How many addresses of so many named in an offer were sent something, and how much."""
    loop = asyncio.get_running_loop()
    here = get_host_addresses(use_ipv4=True, use_ipv6=False)[0]
    ends = [
        await loop.create_datagram_endpoint(Sink, local_addr=(here, 0), family=socket.AF_INET)
        for _ in range(sinks)
    ]
    ports = [transport.get_extra_info("sockname")[1] for transport, _ in ends]
    named = [f"a=candidate:{n} 1 udp {n} {here} {port} typ host" for n, port in enumerate(ports)]
    try:
        async with prepared(Microphone()) as peer:
            await post_offer(peer, running.url, edit=lambda sdp: naming(sdp, named))
            await asyncio.sleep(wait_s)
    finally:
        for transport, _ in ends:
            transport.close()
    counts = [sink.packets for _, sink in ends]
    return sum(count > 0 for count in counts), sum(counts)


async def test_a_hostile_offer_makes_few_packets() -> None:
    """Of 200 addresses that it names, as many as the bound are sent a few packets in two seconds;
    where private ones are not called, none is."""
    async with running_gateway(max_sessions=4) as running:
        reached, packets = await packets_of(running, 200, 2.0)
    addresses = len(get_host_addresses(use_ipv4=True, use_ipv6=False))
    assert 0 < reached <= CANDIDATES_MAX
    assert packets <= 4 * addresses * CANDIDATES_MAX
    async with running_gateway(max_sessions=4, ice_private_candidates=False) as running:
        assert await packets_of(running, 20, 1.0) == (0, 0)
