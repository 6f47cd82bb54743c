// The way to the server: wait until its engine is ready, connect, and come back after a loss, to the
// same conversation while the server keeps it.
// A call over WebRTC where the server takes them, else a WebSocket.

import { Call, ResumeRefused } from "./call.js";
import { isPlayoutRefusal, realtimeUrl, sessionUpdate, subprotocols, withKey } from "./protocol.js";

const STATUS_PERIOD_MS = 700;
const STATUS_TIMEOUT_MS = 5_000;
const ENGINE_USUAL_MS = 90_000; // an engine that has not connected by then may not be running
const BACKOFF_MS = [1_000, 2_000, 4_000, 8_000, 15_000]; // the last one again and again
const COME_BACK_MS = 300; // the first try, when the server keeps the conversation
const KEPT_BACKOFF_MS = 4_000; // at most, meanwhile: it keeps it for a minute
const MAX_BUFFERED_BYTES = 256 * 1024; // about 4 s of sound; beyond it sound is dropped and counted
const GONE = "The server does not answer: is it running?";
const TOKEN_UNKNOWN = "resume_token_unknown"; // the conversation is not kept any more
const FORGOTTEN = "The server no longer has this conversation: it was started anew, or kept it for long enough.";
const IN_USE = "The server still waits for the connection that was lost.";
const UNAUTHORISED = 401;
const NOT_FOR_SECRETS = 403; // an ephemeral secret opens sessions, and may read nothing else
const KEY_NEEDED = "This server needs an API key.";
const KEY_WRONG = "The server does not know that key.";
const KEY_STORE = "headstart.key"; // for as long as the tab is open
const TRY_LATER = 1013; // WebSocket close code: overloaded

/** Why a WebSocket closed, as one sentence. */
function whyClosed({ code, reason }) {
  if (code === TRY_LATER) return "The server has no room for another conversation just now.";
  if (reason) return `The server ended the connection: ${reason}`;
  return "The connection to the server was lost.";
}

/** What the engine is doing before it can serve, for people. */
export function whatLoads({ state, reason, loading }, waitedMs) {
  if (state === "waiting") {
    if (waitedMs < ENGINE_USUAL_MS) return "The engine is starting. That takes from seconds to a minute.";
    return "No engine has connected yet. Is one running? Its log says what it waits for.";
  }
  if (!loading) return reason ? `The engine is not ready: ${reason}.` : "The engine is starting.";
  return `Loading: ${loading.what}`;
}

export class Connection {
  /**
   * @param {string} pageUrl where the page is; the server is behind it
   * @param {{onEvent: Function, onLink: Function, onServer: Function, onLost: Function,
   *   onPassed: Function, askKey: Function}} listener
   *   onEvent(event) for each server event; onPassed(direction, event) for each event "sent" or
   *   "received", whatever becomes of it; onLink(state, message, share) on the way there, with
   *   the share of what is being loaded that is there, if that is known;
   *   onServer(status) with what `/status` says, once it is ready; askKey(sentence) promises a key;
   *   onLost(message, retryInMs, kept) when there is none; `kept`: the server keeps the
   *   conversation for a while
   */
  constructor(pageUrl, listener) {
    this.pageUrl = pageUrl;
    this.listener = listener;
    this.socket = null;
    this.call = null; // the socket, if it is a call
    // Until one has failed; with ?transport=websocket in the page's address, never.
    this.takesCalls = new URL(pageUrl).searchParams.get("transport") !== "websocket";
    this.token = null; // by which the server finds this conversation again
    this.lastEventId = null; // of what has come of it
    this.failures = 0;
    this.refusal = null; // why the conversation does not go on, as a sentence; the close follows
    this.retryTimer = null;
    this.waits = false; // for the next try
    this.droppedPackets = 0;
    this.aloud = true; // whether spoken answers are asked for
    this.byHand = false; // whether the person ends the turns
    this.tellsPlayout = true; // until a server has refused that
    this.key = sessionStorage.getItem(KEY_STORE) ?? "";
  }

  /** The browser has a network again. */
  online() {
    if (this.waits) this.connect();
  }

  /** Starts, or cuts short the wait for the next try. */
  async connect() {
    clearTimeout(this.retryTimer);
    this.waits = false;
    this.listener.onLink("connecting", "");
    try {
      const { model, webrtc } = await this.engineReady();
      await this.open(model, webrtc && this.takesCalls);
    } catch (error) {
      if (!(error instanceof ServerGone)) throw error;
      this.lost(error.message);
    }
  }

  /** @returns {Promise<{model: string, webrtc: boolean}>} what is loaded; if calls are taken */
  async engineReady() {
    const sinceMs = performance.now();
    for (;;) {
      const status = await this.status();
      const { engine, model, webrtc } = status;
      if (engine.state === "ready") {
        this.listener.onServer(status);
        return { model: model.name, webrtc: Boolean(webrtc) };
      }
      const share = engine.loading?.total > 0 ? engine.loading.done / engine.loading.total : null;
      const said = whatLoads(engine, performance.now() - sinceMs);
      this.listener.onLink("loading", said, share);
      await new Promise((resolve) => setTimeout(resolve, STATUS_PERIOD_MS));
    }
  }

  async status() {
    try {
      const signal = AbortSignal.timeout(STATUS_TIMEOUT_MS);
      const request = { cache: "no-store", signal, headers: withKey(this.key) };
      const reply = await fetch(new URL("status", this.pageUrl), request);
      if (reply.status === NOT_FOR_SECRETS) return await this.health(signal);
      if (reply.status !== UNAUTHORISED) return await reply.json();
    } catch (error) {
      throw new ServerGone(GONE, { cause: error });
    }
    this.key = await this.listener.askKey(this.key ? KEY_WRONG : KEY_NEEDED);
    sessionStorage.setItem(KEY_STORE, this.key);
    this.listener.onLink("connecting", "");
    return this.status();
  }

  /** What everybody may know, in the form of `status()`. */
  async health(signal) {
    const reply = await fetch(new URL("healthz", this.pageUrl), { cache: "no-store", signal });
    const { engine, reason } = await reply.json();
    return { engine: { state: engine, reason }, model: { name: "" }, webrtc: true };
  }

  async open(model, byCall) {
    const onMessage = ({ data }) => this.received(JSON.parse(data));
    const onClose = (event) => this.lost(whyClosed(event));
    if (byCall) {
      try {
        this.call = await Call.to(this.pageUrl, this.token, this.lastEventId, this.key);
        this.socket = this.call;
        this.call.listen(onMessage, onClose);
        return;
      } catch (error) {
        if (error instanceof ResumeRefused) {
          this.refused(error.code);
          this.lost(error.message);
          return;
        }
        this.takesCalls = false; // UDP is blocked, or the browser has no WebRTC
        console.info(`talking over a WebSocket: ${error.message}`);
      }
    }
    const url = realtimeUrl(this.pageUrl, model, this.token && this.lastEventId);
    const socket = new WebSocket(url, subprotocols(this.token, this.key));
    this.socket = socket;
    socket.onmessage = onMessage;
    socket.onclose = onClose;
  }

  /** For a call: the microphone's track, or null for none. Without one, `sendMedia` carries it. */
  speak(track) {
    this.call?.speak(track);
  }

  received(event) {
    this.lastEventId = event.event_id ?? this.lastEventId;
    this.listener.onPassed("received", event);
    if (isPlayoutRefusal(event)) {
      // It is about that answer, or about the event's type: an older server does not know it.
      if (event.error.param === "type") this.tellsPlayout = false;
      return;
    }
    if (event.type === "session.created") this.send(sessionUpdate(this.aloud, this.byHand));
    if (event.type === "gateway.session.resumable") this.token = event.token;
    if (["session.updated", "gateway.session.resumed"].includes(event.type)) this.failures = 0;
    if (event.type === "error" && this.refused(event.error.code)) return;
    this.listener.onEvent(event);
  }

  /** @returns {boolean} whether that error's code is about coming back; the close follows */
  refused(code) {
    if (!code?.startsWith("resume_")) return false;
    this.refusal = code === TOKEN_UNKNOWN ? FORGOTTEN : IN_USE;
    if (code === TOKEN_UNKNOWN) {
      this.token = null;
      this.failures = 0; // the server is there: a new conversation need not wait
    }
    return true;
  }

  lost(whyLost) {
    const message = this.refusal ?? whyLost;
    this.refusal = null;
    this.socket = null;
    this.call = null;
    const kept = this.token !== null;
    const backoffMs = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)];
    const soonMs = this.failures === 0 ? COME_BACK_MS : Math.min(backoffMs, KEPT_BACKOFF_MS);
    const retryInMs = kept ? soonMs : backoffMs;
    this.failures += 1;
    this.retryTimer = setTimeout(() => this.connect(), retryInMs);
    this.waits = true;
    this.listener.onLost(message, retryInMs, kept);
  }

  send(message) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify(message));
    this.listener.onPassed("sent", message);
  }

  /** For sound and pictures: dropped, and counted, when the line is too slow to take them. */
  sendMedia(message) {
    if (this.socket && this.socket.bufferedAmount > MAX_BUFFERED_BYTES) this.droppedPackets += 1;
    else this.send(message);
  }
}

class ServerGone extends Error {}
