// The way to the server: wait until its engine is ready, connect, and come back after a loss.

import { realtimeUrl, sessionUpdate } from "./protocol.js";

const STATUS_PERIOD_MS = 700;
const STATUS_TIMEOUT_MS = 5_000;
const BACKOFF_MS = [1_000, 2_000, 4_000, 8_000, 15_000]; // the last one again and again
const MAX_BUFFERED_BYTES = 256 * 1024; // about 4 s of sound; beyond it sound is dropped and counted
const GONE = "The server does not answer.";
const TRY_LATER = 1013; // WebSocket close code: overloaded

/** Why a WebSocket closed, as one sentence. */
function whyClosed({ code, reason }) {
  if (code === TRY_LATER) return "The server has no room for another conversation just now.";
  if (reason) return `The server ended the connection: ${reason}`;
  return "The connection to the server was lost.";
}

/** What the engine is doing before it can serve, as one sentence. */
function whatLoads({ reason, loading }) {
  if (!loading) return reason ? `The engine is not ready: ${reason}.` : "The engine is starting.";
  const share = loading.total > 0 ? ` (${Math.floor((100 * loading.done) / loading.total)} %)` : "";
  return `Loading: ${loading.what}${share}`;
}

export class Connection {
  /**
   * @param {string} pageUrl where the page is; the server is behind it
   * @param {{onEvent: Function, onLink: Function, onLost: Function}} listener
   *   onEvent(event) for each server event; onLink(state, message) on the way there;
   *   onLost(message, retryInMs) when there is none
   */
  constructor(pageUrl, listener) {
    this.pageUrl = pageUrl;
    this.listener = listener;
    this.socket = null;
    this.failures = 0;
    this.retryTimer = null;
    this.droppedPackets = 0;
  }

  /** Starts, or cuts short the wait for the next try. */
  async connect() {
    clearTimeout(this.retryTimer);
    this.listener.onLink("connecting", "");
    try {
      this.open(await this.engineReady());
    } catch (error) {
      if (!(error instanceof ServerGone)) throw error;
      this.lost(error.message);
    }
  }

  /** @returns {Promise<string>} the name of the model that the engine has loaded */
  async engineReady() {
    for (;;) {
      const { engine, model } = await this.status();
      if (engine.state === "ready") return model.name;
      this.listener.onLink("loading", whatLoads(engine));
      await new Promise((resolve) => setTimeout(resolve, STATUS_PERIOD_MS));
    }
  }

  async status() {
    try {
      const signal = AbortSignal.timeout(STATUS_TIMEOUT_MS);
      const reply = await fetch(new URL("status", this.pageUrl), { cache: "no-store", signal });
      return await reply.json();
    } catch (error) {
      throw new ServerGone(GONE, { cause: error });
    }
  }

  open(model) {
    const socket = new WebSocket(realtimeUrl(this.pageUrl, model));
    this.socket = socket;
    socket.onmessage = ({ data }) => this.received(JSON.parse(data));
    socket.onclose = (event) => this.lost(whyClosed(event));
  }

  received(event) {
    if (event.type === "session.created") this.send(sessionUpdate());
    if (event.type === "session.updated") this.failures = 0;
    this.listener.onEvent(event);
  }

  lost(message) {
    this.socket = null;
    const retryInMs = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)];
    this.failures += 1;
    this.retryTimer = setTimeout(() => this.connect(), retryInMs);
    this.listener.onLost(message, retryInMs);
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** For sound and pictures: dropped, and counted, when the line is too slow to take them. */
  sendMedia(message) {
    if (this.socket && this.socket.bufferedAmount > MAX_BUFFERED_BYTES) this.droppedPackets += 1;
    else this.send(message);
  }
}

class ServerGone extends Error {}
