"""Checks an SDP offer before anything is opened for it.

aiortc trusts an offer: it sends connectivity checks to every address in it and looks up every
`.local` name, and a missing field makes tasks fail after the call was answered. Here an offer is
refused with a reason, or reduced to one that aiortc can handle:

    missing    fingerprint, setup, ICE credentials, SCTP port, mid: refused
    too much   lines, sections, numbers outside their range: refused
    candidates at most `CANDIDATES_MAX` per offer, `NAMES_MAX` of them names. Those that cannot
               be used (TCP, RTCP, other names, no unicast address, system ports) and, if the
               settings say so, private ones are dropped and counted
    direction  sendrecv, if an offer gives none (RFC 8866 §6.7)

No sockets and no aiortc connection here: text in, text out.

"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from aiortc.sdp import DIRECTIONS, MediaDescription, SessionDescription, grouplines

CANDIDATES_MAX = 32
NAMES_MAX = 4
"""Each one is a multicast query."""
SECTIONS_MAX = 8
LINES_MAX = 1000
CODECS_MAX = 128
SOURCES_MAX = 64
PAYLOAD_TYPE_MAX = 127
EXTENSION_MAX = 255
SSRC_MAX = (1 << 32) - 1
PORT_MAX = 65_535
SYSTEM_PORT_MAX = 1023
SYSTEM_PORTS = (80, 443)
"""The system ports that a relay may use; browsers connect to no others either."""
DIGEST_BYTES = {"sha-256": 32, "sha-384": 48, "sha-512": 64}
KINDS = ("audio", "video", "application")
_CREDENTIAL = {"ice-ufrag": r"[!-~]{4,256}", "ice-pwd": r"[!-~]{22,256}"}
_NUMBER = r"[0-9]{1,10}"
_MID = r"[!-~]{1,32}"
_MDNS = r"[a-zA-Z0-9-]{1,63}\.local"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadOffer(Exception):
    """The peer's SDP cannot be answered; the message tells the peer why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The SDP offer cannot be answered: {reason}")


@dataclass(frozen=True, slots=True)
class Offer:
    """`sdp`: the reduced offer; `transports`: how many separate transports it needs; `dropped`: the
    number of dropped candidates."""

    sdp: str
    transports: int
    dropped: int


def checked(sdp: str, private: bool = True) -> Offer:
    """The offer in the form that may be answered. `private`: whether private addresses are allowed.
    Raises `BadOffer`."""
    lines = sdp.splitlines()
    if len(lines) > LINES_MAX:
        raise BadOffer(f"it has {len(lines)} lines, at most {LINES_MAX} are read")
    if not all(line.replace("\t", "").isprintable() for line in lines):
        raise BadOffer("it has control characters")
    session, groups = grouplines(sdp)
    if not groups:
        raise BadOffer("it has no media section")
    if len(groups) > SECTIONS_MAX:
        raise BadOffer(f"it has {len(groups)} media sections, at most {SECTIONS_MAX} are taken")
    candidates = _Candidates(private)
    groups = [list(_kept(group, candidates, session)) for group in groups]
    groups = [_open_ended(group) if candidates.dropped else group for group in groups]
    groups = [group if _has_candidates(group) else _open_ended(group) for group in groups]
    left = "".join(f"{line}\r\n" for part in (session, *groups) for line in part)
    description = _parsed(left)
    for number, media in enumerate(description.media):
        _check_section(media, f"section {number + 1} ({media.kind})")
    return Offer(left, _transports(description), candidates.dropped)


def _parsed(sdp: str) -> SessionDescription:
    try:
        return SessionDescription.parse(sdp)
    except Exception as error:  # it raises many kinds of errors for invalid SDP
        raise BadOffer(f"it is malformed: {str(error) or type(error).__name__}") from error


def _kept(group: list[str], candidates: _Candidates, session: list[str]) -> Iterator[str]:
    """The lines of a section that are kept, with a direction."""
    for line in group:
        if not line.startswith("a=candidate:") or candidates.keeps(line):
            yield line
    directions = {f"a={direction}" for direction in DIRECTIONS}
    if not directions & set(group) and not group[0].startswith("m=application"):
        yield next((line for line in session if line in directions), "a=sendrecv")


def _has_candidates(group: list[str]) -> bool:
    return any(line.startswith("a=candidate:") for line in group)


def _open_ended(group: list[str]) -> list[str]:
    """Remove the end-of-candidates mark if some candidates were dropped: the peer may still reach
    us, but aioice gives up a transport that will get no more candidates."""
    return [line for line in group if line != "a=end-of-candidates"]


class _Candidates:
    """Decides which of an offer's candidates are kept."""

    def __init__(self, private: bool) -> None:
        self._private = private
        self._count = 0
        self._names: set[str] = set()
        self.dropped = 0

    def keeps(self, line: str) -> bool:
        """Raises `BadOffer`."""
        parts = line.removeprefix("a=candidate:").split()
        if len(parts) < 8 or not all(re.fullmatch(_NUMBER, parts[at]) for at in (1, 3, 5)):
            raise BadOffer(f"{line!r} is no candidate (RFC 8839 §5.1)")
        _, component, transport, _, host, port, _, kind = parts[:8]
        callable_here = (
            component == "1"
            and transport.lower() == "udp"
            and kind in ("host", "srflx", "relay")
            and _may_be_called(int(port))
            and self._is_reachable(host)
        )
        if callable_here and self._count < CANDIDATES_MAX:
            self._count += 1
            return True
        self.dropped += 1
        return False

    def _is_reachable(self, host: str) -> bool:
        if re.fullmatch(_MDNS, host) is not None:
            if self._private and (len(self._names) < NAMES_MAX or host in self._names):
                self._names.add(host)
                return True
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False  # names are not looked up in DNS
        return may_be_sent_to(address, self._private)


def may_be_sent_to(address: Address, private: bool) -> bool:
    """Whether an untrusted peer may have packets sent to that address: it must be a single host's,
    and, unless `private` is set, globally reachable."""
    for inner in (address, *_within(address)):
        if isinstance(inner, ipaddress.IPv6Address) and inner.scope_id is not None:
            return False
        broadcast = isinstance(inner, ipaddress.IPv4Address) and inner.is_reserved
        if inner.is_unspecified or inner.is_multicast or broadcast:
            return False
        mapped = inner is address and _within(address)
        if not private and not inner.is_global and not mapped:
            return False
    return True


def _within(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The IPv4 addresses embedded in an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & SSRC_MAX))
    return tuple(inner for inner in found if inner is not None)


def _may_be_called(port: int) -> bool:
    return SYSTEM_PORT_MAX < port <= PORT_MAX or port in SYSTEM_PORTS


def _check_section(media: MediaDescription, name: str) -> None:
    """Raises `BadOffer`."""
    if media.kind not in KINDS:
        raise BadOffer(f"{name}: there is no such kind here, only {', '.join(KINDS)}")
    ice = media.ice
    given = {"ice-ufrag": ice and ice.usernameFragment, "ice-pwd": ice and ice.password}
    if not all(re.fullmatch(_CREDENTIAL[name_of], str(given[name_of] or "")) for name_of in given):
        raise BadOffer(f"{name}: it needs a=ice-ufrag of 4 letters, a=ice-pwd of 22, or more")
    if media.dtls is None:
        raise BadOffer(f"{name}: it needs a=setup")
    digests = [f for f in media.dtls.fingerprints if f.algorithm.lower() in DIGEST_BYTES]
    if not digests:
        raise BadOffer(f"{name}: it needs a=fingerprint, of {', '.join(DIGEST_BYTES)}")
    for digest in digests:
        pairs = DIGEST_BYTES[digest.algorithm.lower()] - 1
        if re.fullmatch(rf"[0-9A-Fa-f]{{2}}(:[0-9A-Fa-f]{{2}}){{{pairs}}}", digest.value) is None:
            raise BadOffer(f"{name}: its a=fingerprint is no {digest.algorithm} digest")
    if media.kind == "application":
        _check_data(media, name)
    else:
        _check_media(media, name)


def _check_data(media: MediaDescription, name: str) -> None:
    port = str(media.fmt[0] if media.profile == "DTLS/SCTP" else media.sctp_port)
    if not re.fullmatch(_NUMBER, port) or not 0 < int(port) <= PORT_MAX:
        raise BadOffer(f"{name}: it needs a=sctp-port, from 1 to {PORT_MAX}")


def _check_media(media: MediaDescription, name: str) -> None:
    if not media.rtcp_mux:
        raise BadOffer(f"{name}: it needs a=rtcp-mux")
    if len(media.rtp.codecs) > CODECS_MAX or len(media.ssrc) > SOURCES_MAX:
        raise BadOffer(f"{name}: at most {CODECS_MAX} codecs and {SOURCES_MAX} sources are read")
    types = [*media.fmt, *(codec.payloadType for codec in media.rtp.codecs)]
    if not all(0 <= kind <= PAYLOAD_TYPE_MAX for kind in types):
        raise BadOffer(f"{name}: its payload types are from 0 to {PAYLOAD_TYPE_MAX}")
    if not all(0 < extension.id <= EXTENSION_MAX for extension in media.rtp.headerExtensions):
        raise BadOffer(f"{name}: its a=extmap numbers are from 1 to {EXTENSION_MAX}")
    if not all(0 <= source.ssrc <= SSRC_MAX for source in media.ssrc):
        raise BadOffer(f"{name}: its a=ssrc numbers are from 0 to {SSRC_MAX}")


def _transports(description: SessionDescription) -> int:
    """How many transports aiortc opens for it. Raises `BadOffer` if its sections cannot be told
    apart."""
    mids = [media.rtp.muxId for media in description.media]
    if len(mids) > 1 and not all(re.fullmatch(_MID, mid) for mid in mids):
        raise BadOffer("each of its sections needs a=mid, of at most 32 letters")
    if len(set(mids)) < len(mids):
        raise BadOffer("two of its sections have the same a=mid")
    if sum(media.kind == "application" for media in description.media) > 1:
        raise BadOffer("it has two sections for data channels")
    bundled: list[str] = []
    for group in description.group:
        if group.semantic == "BUNDLE":
            bundled += map(str, group.items)
    if not set(bundled) <= set(mids) or len(set(bundled)) < len(bundled):
        raise BadOffer("its a=group:BUNDLE names sections that are not there, or one twice")
    return len(mids) - max(0, len(bundled) - 1)
