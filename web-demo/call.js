// A WebRTC call with the face of a WebSocket: events on a data channel, sound on a track.

import { useSpeaker } from "./media.js";
import { RESUME_HEADER, withKey } from "./protocol.js";

const ICE_WAIT_MS = 4_000; // to connect; after that the WebSocket is the better way
// Without an answer for about 5 s the browser says "disconnected", and "failed" only 10 s later. The
// server gives a call up within 5 s: behind that only a new call helps.
const DISCONNECTED_MS = 1_000;
const LABEL = "oai-events";
const OPEN = WebSocket.OPEN;

/** Where calls are made, from where the page is. */
export function callsUrl(pageUrl, lastEventId = null) {
  const url = new URL("v1/realtime/calls", pageUrl);
  if (lastEventId) url.searchParams.set("last_event_id", lastEventId);
  return url;
}

/** The conversation that a call was to go on with cannot be had. */
export class ResumeRefused extends Error {
  /** @param {string} code as in the API's error object */
  constructor(code) {
    super(`the server does not go on: ${code}`);
    this.code = code;
  }
}

export class Call {
  /**
   * Calls the server, to go on with a conversation where there is a token. Rejects when it does not
   * take calls or no packet gets through, and with `ResumeRefused`.
   * @returns {Promise<Call>} with the channel open
   */
  static async to(pageUrl, token = null, lastEventId = null, key = "") {
    const call = new Call();
    try {
      await call.connect(callsUrl(pageUrl, token && lastEventId), token, key);
      return call;
    } catch (error) {
      call.peer.close();
      throw error;
    }
  }

  constructor() {
    this.onmessage = null; // as a WebSocket's
    this.onclose = null;
    this.early = []; // messages from before `onmessage` was set
    this.giveUp = null; // the timer that ends a call which gets no answer any more
    this.peer = new RTCPeerConnection();
    this.channel = this.peer.createDataChannel(LABEL);
    this.sender = this.peer.addTransceiver("audio", { direction: "sendrecv" }).sender;
    this.speaker = new Audio(); // plays what the server says on its track
    this.reroute();
    this.peer.ontrack = ({ track }) => {
      this.speaker.srcObject = new MediaStream([track]);
      this.sound();
    };
    this.channel.onmessage = (message) => {
      if (this.onmessage) this.onmessage(message);
      else this.early.push(message);
    };
  }

  get readyState() {
    return this.channel.readyState === "open" ? OPEN : WebSocket.CLOSED;
  }

  get bufferedAmount() {
    return this.channel.bufferedAmount;
  }

  send(text) {
    this.channel.send(text);
  }

  /** @param {?MediaStreamTrack} track the microphone, or null for none */
  speak(track) {
    return this.sender.replaceTrack(track);
  }

  /**
   * Safari lets it sound only from a touch, or while the microphone is open: call it from a click,
   * too, for what was refused once stays still.
   */
  async sound() {
    if (!this.speaker.srcObject || !this.speaker.paused) return;
    await this.speaker.play().catch(() => {});
  }

  /** Plays on the speaker that was chosen since. */
  reroute() {
    return useSpeaker(this.speaker);
  }

  close() {
    this.peer.close();
  }

  /** Hands over what came already, and from now on everything. */
  listen(onMessage, onClose) {
    this.onmessage = onMessage;
    this.onclose = onClose;
    for (const message of this.early.splice(0)) onMessage(message);
    this.channel.onclose = () => this.ended();
    this.peer.onconnectionstatechange = () => this.changed(this.peer.connectionState);
    this.changed(this.peer.connectionState);
  }

  changed(state) {
    clearTimeout(this.giveUp);
    if (["failed", "closed"].includes(state)) this.ended();
    if (state === "disconnected") this.giveUp = setTimeout(() => this.ended(), DISCONNECTED_MS);
  }

  ended() {
    clearTimeout(this.giveUp);
    this.peer.close();
    const tell = this.onclose;
    this.onclose = null;
    tell?.({ code: 1006, reason: "" });
  }

  async connect(url, token, key = "") {
    await this.peer.setLocalDescription();
    const signal = AbortSignal.timeout(ICE_WAIT_MS);
    const reply = await fetch(url, {
      method: "POST",
      body: this.peer.localDescription.sdp,
      headers: {
        "Content-Type": "application/sdp",
        ...withKey(key),
        ...(token && { [RESUME_HEADER]: token }),
      },
      signal,
    });
    if (token && [404, 409].includes(reply.status)) {
      throw new ResumeRefused((await reply.json()).error.code);
    }
    if (!reply.ok) throw new Error(`the server takes no call: ${reply.status}`);
    await this.peer.setRemoteDescription({ type: "answer", sdp: await reply.text() });
    await new Promise((resolve, reject) => {
      this.channel.onopen = resolve;
      signal.onabort = () => reject(new Error("no packet gets through"));
    });
  }
}
