"""Recognises an offer that would change a call which was answered before.

A call is settled by its first offer. aiortc restarts no ICE, and an offer that came again would be
answered by a new connection: a browser takes that answer, stays "connected", and no packet goes
either way. So such an offer is refused. It has the DTLS fingerprint of the earlier one and

    the same ICE user fragment                     a track or a data channel was added
    or the same origin with a higher version       the same, or an ICE restart (RFC 8829 §5.2.2)

A fingerprint alone proves nothing: clients may use one certificate for many connections. Nor does
an offer that comes again before the first answer has led to a connection: that answer may be lost.

"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

REMEMBERED_MAX = 1024
"""Offers of calls that have ended. A browser notices later than the server that a call is over."""
_ORIGIN = re.compile(r"^o=(\S+ \S+) (\d{1,20}) ", re.MULTILINE)
_FINGERPRINT = re.compile(r"^a=fingerprint:(\S+ \S+)", re.MULTILINE)
_FRAGMENT = re.compile(r"^a=ice-ufrag:(\S+)", re.MULTILINE)

_Key = tuple[str, str, str]


@dataclass(slots=True)
class AnsweredOffer:
    """An offer that was answered. `version`: of its origin. The call keeps `is_connected` and
    `is_over` up to date."""

    keys: tuple[_Key, ...]
    version: int
    is_connected: bool = False
    is_over: bool = False


class AnsweredOffers:
    """Those of the calls that go on, and the newest `REMEMBERED_MAX` of those that were connected
    and have ended."""

    def __init__(self) -> None:
        self._offers: dict[_Key, AnsweredOffer] = {}
        self._over: dict[int, AnsweredOffer] = {}  # by identity, the oldest first

    def changes_a_call(self, sdp: str) -> bool:
        """Whether the offer is another one of a peer whose call was connected."""
        version = _version(sdp)
        for key in _keys(sdp):
            known = self._offers.get(key)
            if known is None or not known.is_connected:
                continue
            if key[0] == "origin" and version > known.version:
                return True
            # A simple client may have one user fragment for all its calls.
            if key[0] == "fragment" and not known.is_over:
                return True
        return False

    def answered(self, sdp: str) -> AnsweredOffer:
        """The offer was answered: its call begins."""
        offer = AnsweredOffer(tuple(_keys(sdp)), _version(sdp))
        for key in offer.keys:
            self._offers[key] = offer
        return offer

    def ended(self, offer: AnsweredOffer) -> None:
        """The call is over."""
        offer.is_over = True
        if not offer.is_connected:
            self._forget(offer)
            return
        self._over[id(offer)] = offer
        if len(self._over) > REMEMBERED_MAX:
            self._forget(self._over.pop(next(iter(self._over))))

    def _forget(self, offer: AnsweredOffer) -> None:
        for key in offer.keys:
            if self._offers.get(key) is offer:  # a later call may have the same certificate
                del self._offers[key]


def _keys(sdp: str) -> Iterator[_Key]:
    origin = _ORIGIN.search(sdp)
    fragments = set(_FRAGMENT.findall(sdp))
    for fingerprint in set(_FINGERPRINT.findall(sdp)):
        if origin is not None:
            yield "origin", fingerprint, origin[1]
        for fragment in fragments:
            yield "fragment", fingerprint, fragment


def _version(sdp: str) -> int:
    origin = _ORIGIN.search(sdp)
    return int(origin[2]) if origin is not None else 0
