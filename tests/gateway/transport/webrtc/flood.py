"""A call that floods: `python -m tests.gateway.transport.webrtc.flood URL SECONDS`.

Sends valid packets of sound as fast as one process can, to a server on this machine, and prints how
many went. A process of its own, so that its work is not the server's loop's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from aiortc.rtp import RtpPacket

from tests.gateway.transport.webrtc.peer import Microphone, calling
from tests.gateway.transport.webrtc.sound import opus_packets, sine

PACKETS_MAX = 10_000_000  # beyond what a fast machine sends in a test's minute
AT_ONCE = 50


async def flood(url: str, seconds: float) -> int:
    """How many were sent."""
    assert urlsplit(url).hostname == "127.0.0.1", "floods are for this machine alone"
    payload = opus_packets(sine(440, 0.1, 48_000), 48_000)[1]
    async with calling(url, Microphone()) as peer:
        await asyncio.sleep(0.5)  # an ordinary call first
        sender = peer.pc.getSenders()[0]
        transport: Any = sender.transport
        # Another source than the microphone's own packets are of.
        codecs: Any = peer.pc.getTransceivers()[0]._codecs
        opus = next(codec for codec in codecs if codec.mimeType == "audio/opus")
        packet = RtpPacket(payload_type=opus.payloadType, ssrc=7, payload=payload)
        sent, until_s = 0, time.monotonic() + seconds
        while time.monotonic() < until_s and sent < PACKETS_MAX:
            for _ in range(AT_ONCE):
                packet.sequence_number, packet.timestamp = sent & 0xFFFF, sent * 960 & 0xFFFFFFFF
                await transport._send_rtp(packet.serialize())
                sent += 1
            await asyncio.sleep(0)
        return sent


if __name__ == "__main__":
    print(asyncio.run(flood(sys.argv[1], float(sys.argv[2]))), flush=True)
