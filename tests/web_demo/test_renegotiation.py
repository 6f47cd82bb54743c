"""A page of somebody's that would change its call by another offer, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.web_demo.conftest import PageOpener
from tests.web_demo.test_coming_back import LOAD_TIMEOUT_MS, serving

CALL = """async () => {
  const microphone = (await navigator.mediaDevices.getUserMedia({ audio: true })).getTracks()[0];
  const peer = (window.peer = new RTCPeerConnection());
  window.types = [];
  window.post = async () => {
    const headers = { "Content-Type": "application/sdp" };
    const body = peer.localDescription.sdp;
    const reply = await fetch("/v1/realtime/calls", { method: "POST", headers, body });
    return { status: reply.status, text: await reply.text() };
  };
  peer.addTrack(microphone, new MediaStream([microphone]));
  window.channel = peer.createDataChannel("oai-events");
  channel.onmessage = ({ data }) => types.push(JSON.parse(data).type);
  await peer.setLocalDescription();
  await peer.setRemoteDescription({ type: "answer", sdp: (await post()).text });
  await new Promise((resolve) => (channel.onopen = resolve));
}"""
CHANGES = {
    "an ICE restart": "peer.restartIce();",
    "a camera": "peer.addTransceiver('video');",
    "nothing": "",
}


@pytest.mark.timeout(180)
def test_another_offer_is_refused_and_the_call_goes_on(
    browser: Browser, open_page: PageOpener
) -> None:
    """409 with the error's name; taken back, the offer has changed nothing: events still come."""
    with serving() as (port, _):
        page = open_page(browser, f"http://127.0.0.1:{port}/").page
        page.wait_for_selector("body[data-phase=idle]", timeout=LOAD_TIMEOUT_MS)
        page.evaluate(CALL)
        for change in CHANGES.values():
            reply = page.evaluate(
                f"""async () => {{
                  {change}
                  await peer.setLocalDescription(await peer.createOffer());
                  const reply = await post();
                  await peer.setLocalDescription({{ type: "rollback" }});
                  return reply;
                }}"""
            )
            assert reply["status"] == 409, reply
            assert "renegotiation_unsupported" in reply["text"]
            page.evaluate('types.splice(0), channel.send(\'{"type": "none.such"}\')')
            page.wait_for_function("() => types.includes('error')")
        assert page.evaluate("peer.connectionState") == "connected"
