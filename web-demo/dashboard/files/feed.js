// The live feed: connects, comes back after a loss, and hands over each message with its line.

import { subprotocols, withKey } from "../../protocol.js";

const BACKOFF_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000]; // the last one again and again
const STATUS_TIMEOUT_MS = 5_000;
const SILENT_AFTER_MS = 5_000; // a snapshot comes each second; the page says so when none does
const POLL_MS = 1_000;
const KEY_STORE = "headstart.key"; // the talk page's too, for as long as the tab is open
const UNAUTHORISED = 401;
const FORBIDDEN = 403;

export function feedUrl(pageUrl) {
  const url = new URL("../v1/dashboard", pageUrl);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = "";
  url.search = "";
  return url.href;
}

export class Feed {
  /**
   * @param {string} pageUrl of the dashboard
   * @param {{onMessage: Function, onState: Function, askKey: Function}} listener
   *   onMessage(message, line); onState(state, sentence) with "connecting", "live", "silent", "lost" or
   *   "locked"; askKey(sentence) promises a key
   */
  constructor(pageUrl, listener) {
    this.pageUrl = pageUrl;
    this.listener = listener;
    this.socket = null;
    this.failures = 0;
    this.timer = null;
    this.watchesChunks = false;
    this.heardMs = 0;
    this.state = "";
    this.key = sessionStorage.getItem(KEY_STORE) ?? "";
    setInterval(() => this.listen(), POLL_MS);
  }

  connect() {
    clearTimeout(this.timer);
    this.say("connecting", "Connecting to the server…");
    const socket = new WebSocket(feedUrl(this.pageUrl), subprotocols(null, this.key));
    this.socket = socket;
    let greeted = false;
    let refused = null;
    socket.onmessage = ({ data }) => {
      this.heardMs = performance.now();
      const message = parsed(data);
      if (!greeted && message?.error?.code) {
        refused = message.error; // said after the handshake, since browsers hide a refused one
        return;
      }
      if (message?.type === "hello") {
        greeted = true;
        this.failures = 0;
        if (this.watchesChunks) this.watch(true);
      }
      this.say("live", "Live");
      this.listener.onMessage(message, data);
    };
    socket.onclose = (event) => this.closed(socket, event, greeted, refused);
  }

  async closed(socket, { code, reason }, greeted, refused) {
    if (socket !== this.socket) return;
    this.socket = null;
    const why = greeted
      ? { sentence: reason ? `The server ended the feed: ${reason}.` : "The feed was cut." }
      : await this.reasonOf(refused, code);
    if (why.askKey) {
      this.say("locked", why.sentence);
      this.key = await this.listener.askKey(why.sentence);
      sessionStorage.setItem(KEY_STORE, this.key);
      this.connect();
      return;
    }
    const waitMs = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)];
    this.failures += 1;
    this.say(
      "lost",
      `${why.sentence} Trying again in ${Math.max(1, Math.round(waitMs / 1_000))} s.`,
    );
    this.timer = setTimeout(() => this.connect(), waitMs * (0.75 + Math.random() / 2));
  }

  /** Why there was no feed at all: the handshake hides it, `/status` says it. */
  async reasonOf(refused, code) {
    if (refused?.code === "invalid_api_key") return this.locked();
    if (refused) return { sentence: refused.message ?? refused.code };
    try {
      const signal = AbortSignal.timeout(STATUS_TIMEOUT_MS);
      const request = { cache: "no-store", signal, headers: withKey(this.key) };
      const { status } = await fetch(new URL("../status", this.pageUrl), request);
      if (status === UNAUTHORISED) return this.locked();
      if (status === FORBIDDEN) {
        return {
          askKey: true,
          sentence:
            "This key opens conversations, but may not look at the dashboard. Use an API key.",
        };
      }
      return { sentence: `The server runs, but gives no dashboard feed (close code ${code}).` };
    } catch {
      return { sentence: "The server does not answer: is it running?" };
    }
  }

  locked() {
    const sentence = this.key
      ? "The server does not know that key."
      : "This server needs an API key.";
    return { askKey: true, sentence };
  }

  listen() {
    if (this.state === "live" && performance.now() - this.heardMs > SILENT_AFTER_MS) {
      this.say("silent", "Connected, but nothing has come for 5 s.");
    }
  }

  /** Whether each chunk of the open sessions is sent, too. */
  watch(chunks) {
    this.watchesChunks = chunks;
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify({ type: "watch", chunks }));
    }
  }

  say(state, sentence) {
    if (state === this.state && state === "live") return;
    this.state = state;
    this.listener.onState(state, sentence);
  }
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null; // counted as unreadable
  }
}
