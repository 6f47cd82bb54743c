// The page: the feed or a recording in, the strip and one screen out, drawn only while it is seen.

import { Feed } from "./files/feed.js";
import { Recorder } from "./files/recorder.js";
import { Store } from "./data/store.js";
import { loadLibrary } from "./charts/library.js";
import { el, setText } from "./dom.js";
import { many } from "./units.js";
import { Replay } from "./replay.js";
import { Strip } from "./strip.js";
import { Tools } from "./tools.js";
import { CompareScreen } from "./screens/compare.js";
import { EngineScreen } from "./screens/engine.js";
import { ErrorsScreen } from "./screens/errors.js";
import { KeepingUpScreen } from "./screens/keeping-up.js";
import { KvScreen } from "./screens/kv.js";
import { PercentilesScreen } from "./screens/percentiles.js";
import { RtcScreen } from "./screens/rtc.js";
import { SessionsScreen } from "./screens/sessions.js";
import { TurnScreen } from "./screens/turn.js";

const REDRAW_MS = 1_000; // how often the page is drawn at most
const REST_MS = 2_000; // the same, once nobody has touched it for so long:
const REST_AFTER_MS = 10_000;
const INPUTS = ["pointermove", "pointerdown", "keydown", "wheel", "focusin"];
const STRIP_MS = 1_000;
const WINDOWS = [
  [60, "1 min"],
  [300, "5 min"],
  [900, "15 min"],
  [3_600, "1 h"],
];
const SCREENS = [
  ["sessions", "Sessions", SessionsScreen],
  ["percentiles", "Percentiles", PercentilesScreen],
  ["turn", "Turn", TurnScreen],
  ["keeping-up", "Keeping up", KeepingUpScreen],
  ["engine", "Engine", EngineScreen],
  ["kv", "KV cache", KvScreen],
  ["rtc", "Calls", RtcScreen],
  ["errors", "Errors", ErrorsScreen],
  ["compare", "Compare", CompareScreen],
];
const byId = (id) => document.getElementById(id);

class App {
  constructor() {
    this.live = new Store();
    this.recorder = new Recorder();
    this.windowMs = 300_000;
    this.screens = new Map();
    this.screen = "sessions";
    this.redrawTimer = null;
    this.drawnAtMs = 0;
    this.touchedAtMs = performance.now();
    this.drawnStripAtMs = 0;
    this.drawn = { store: null, version: -1 };
    this.strip = new Strip(byId("strip"), byId("announcer"));
    this.replay = new Replay(this, byId("replay"));
    this.tools = new Tools(this, byId("tools"));
    this.nav();
    this.feed = new Feed(location.href, {
      onMessage: (message, line) => this.received(message, line),
      onState: (state, sentence) => this.stateChanged(state, sentence),
      askKey: (sentence) => askKey(sentence),
    });
    window.addEventListener("hashchange", () => this.route());
    const touched = () => {
      this.touchedAtMs = performance.now();
    };
    for (const input of INPUTS) document.addEventListener(input, touched, { passive: true });
    document.addEventListener("visibilitychange", () => this.redraw());
  }

  /** What is shown: the recording that is open, else the live feed. */
  get store() {
    return this.replay.store ?? this.live;
  }

  nav() {
    this.links = SCREENS.map(([id, title]) => el("a", { href: `#screen=${id}` }, title));
    const select = el(
      "select",
      { onchange: () => this.choose(Number(select.value)) },
      ...WINDOWS.map(([s, text]) => el("option", { value: String(s) }, text)),
    );
    select.value = String(this.windowMs / 1_000);
    byId("nav").append(
      el("div", { class: "links" }, ...this.links),
      el("label", { class: "field" }, "Window ", select),
    );
  }

  choose(seconds) {
    this.windowMs = seconds * 1_000;
    this.redraw(true);
  }

  /** Goes to a screen or turn, as a link does. */
  go(hash) {
    if (location.hash === `#${hash}`) this.route();
    else location.hash = hash;
  }

  route() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const turn = asked.get("turn");
    const wanted = turn !== null ? "turn" : asked.get("screen");
    const known = SCREENS.some(([id]) => id === wanted);
    if (!known && location.hash === "#content") return; // the skip link
    this.screen = known ? wanted : "sessions";
    const screen = this.open();
    if (this.screen === "turn") screen.id = turn;
    byId("content").replaceChildren(screen.node);
    this.links.forEach((link, i) => {
      if (SCREENS[i][0] === this.screen) {
        link.setAttribute("aria-current", "page");
        const bar = link.parentElement; // a phone has not room for all
        bar.scrollLeft =
          link.offsetLeft - bar.offsetLeft - (bar.clientWidth - link.offsetWidth) / 2;
      } else link.removeAttribute("aria-current");
    });
    const title = SCREENS.find(([id]) => id === this.screen)[1];
    document.title = `${title} · headstart dashboard`;
    this.redraw(true);
  }

  open() {
    if (!this.screens.has(this.screen)) {
      const [, , Screen] = SCREENS.find(([id]) => id === this.screen);
      this.screens.set(this.screen, new Screen(this));
    }
    return this.screens.get(this.screen);
  }

  received(message, line) {
    this.recorder.add(line, message?.type === "hello", performance.now());
    this.live.apply(message);
    if (!this.replay.store) this.redraw();
  }

  stateChanged(state, sentence) {
    document.body.dataset.feed = state;
    this.sentence = sentence;
    this.feedState = state;
    byId("key-form").hidden = state !== "locked";
    this.drawState(this.store);
    this.redraw();
  }

  watchChunks(wanted) {
    this.feed.watch(wanted);
  }

  /** Draws soon: at most every REDRAW_MS, at rest REST_MS, and not while nobody can see it. */
  redraw(force = false) {
    if (force) this.drawn.version = -1;
    if (document.hidden || (this.redrawTimer !== null && !force)) return;
    clearTimeout(this.redrawTimer);
    const nowMs = performance.now();
    const everyMs = nowMs - this.touchedAtMs > REST_AFTER_MS ? REST_MS : REDRAW_MS;
    const waitMs = force ? 0 : Math.max(0, this.drawnAtMs + everyMs - nowMs);
    this.redrawTimer = setTimeout(() => requestAnimationFrame(() => this.draw(force)), waitMs);
  }

  draw(force) {
    this.redrawTimer = null;
    this.drawnAtMs = performance.now();
    const { store } = this;
    this.drawState(store);
    const isSame = store === this.drawn.store && store.version === this.drawn.version;
    if (force || this.drawnAtMs - this.drawnStripAtMs >= STRIP_MS || store !== this.drawn.store) {
      this.drawnStripAtMs = this.drawnAtMs;
      this.strip.draw(store);
    }
    this.drawn = { store, version: store.version };
    this.replay.draw();
    document.body.dataset.newest = String(store.seq ?? ""); // what is drawn
    this.open().draw(store, force || (isSame && !store.version));
  }

  drawState(store) {
    const recorded = this.replay.store !== null;
    document.body.dataset.shows = recorded ? "recording" : "live";
    setText(
      byId("state"),
      recorded
        ? `Recording (${this.feedState === "live" ? "the feed goes on" : "no live feed"})`
        : (this.sentence ?? ""),
    );
    const { hello, snapshot } = store;
    const parts = [
      hello?.model ? `model ${hello.model}` : "",
      hello?.headstart ? `headstart ${hello.headstart}` : "",
    ];
    if (snapshot?.engine?.state && snapshot.engine.state !== "ready")
      parts.push(`engine ${snapshot.engine.state}`);
    const missed = store.missed + (snapshot?.dropped ?? 0);
    if (missed) parts.push(`${many(missed, "message")} of the feed missed`);
    if (store.restarts) parts.push(`${many(store.restarts, "restart")} of the server`);
    if (store.unreadable) parts.push(`${many(store.unreadable, "message")} not understood`);
    setText(byId("about"), parts.filter(Boolean).join(" · "));
  }

  /** A sentence that the person should see; an empty one takes it away. */
  notice(sentence) {
    byId("notice").hidden = !sentence;
    setText(byId("notice"), sentence);
  }
}

function askKey(sentence) {
  setText(byId("key-label"), sentence);
  byId("key-form").hidden = false;
  byId("key").focus();
  return new Promise((resolve) => {
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      byId("key-form").hidden = true;
      resolve(byId("key").value.trim());
      byId("key").value = "";
    };
  });
}

await loadLibrary();
const app = new App();
app.route();
app.feed.connect();
