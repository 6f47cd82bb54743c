// Plays spoken answers that come as events (over a WebSocket; a call plays its own track).

import { useSpeaker } from "./media.js";
import { RATE_HZ } from "./protocol.js";

const LONGEST_HOLD_MS = 3_000; // the server says sooner that it goes on (`false_interruption_ms`)
// Asked for the output's timestamp or latency while a microphone is open, Firefox 153 on Linux does
// not come back: the page hangs. There the latency is assumed.
const OUTPUT_HANGS = navigator.userAgent.includes("Firefox/");
const ASSUMED_LATENCY_S = 0.05;
const MAX_UNHEARD = 8; // responses whose sound has come and not been played

export class Player {
  /**
   * @param {(playedMs: number, playing: boolean) => void} onPlayed told every 20 ms of sound
   * @param {(responseId: string, delayMs: number) => void} onHeard told, once it is so, that the
   *   first sample of a response came out of the loudspeaker, so long after it had come in
   */
  constructor(onPlayed, onHeard = () => {}) {
    this.onPlayed = onPlayed;
    this.onHeard = onHeard;
    this.came = new Map(); // response → when its first sound came, until it was heard
    this.context = null;
    this.node = null;
    this.early = []; // pieces from before the graph stood
    this.opening = null;
    this.newest = null; // response
    this.held = false; // stands still
    this.holding = null; // timer
    this.heldAtMs = 0; // when it was told to
    this.onHeld = () => {};
    this.answers = []; // {id, start, end}: samples since the last clear, oldest first
    this.played = 0;
    this.stale = 0; // clears the worklet has not answered yet: its reports are of before
  }

  /** Whether what `onHeard` is told is off by what the real latency differs from the assumed one. */
  get estimates() {
    return OUTPUT_HANGS;
  }

  get playing() {
    return this.answers.length > 0 && this.played < this.answers.at(-1).end;
  }

  /** Browsers let a page sound only once the person has touched it: call it from a click, too. */
  async open() {
    this.opening ??= this.build();
    await this.opening;
    if (this.node) await this.context.resume();
  }

  async build() {
    this.context = new AudioContext({ sampleRate: RATE_HZ });
    if (!this.context.audioWorklet) return; // neither https nor localhost: answers stay text
    await this.context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
    this.node = new AudioWorkletNode(this.context, "player", { numberOfInputs: 0 });
    this.node.port.onmessage = ({ data }) => this.report(data);
    this.node.connect(this.context.destination);
    await useSpeaker(this.context);
    if (this.held) this.node.port.postMessage("hold");
    for (const piece of this.early.splice(0)) this.node.port.postMessage(piece);
  }

  report({ cleared, played, began, held, atS }) {
    if (began) {
      this.began(began, atS);
      return;
    }
    if (cleared) this.stale -= 1;
    else if (this.stale === 0) this.played = played;
    this.onPlayed((this.played * 1_000) / RATE_HZ, this.playing);
    if (held && this.playing) this.onHeld(Math.max(0, this.heardAtMs(atS) - this.heldAtMs));
  }

  /** A response begins at an instant of the graph's clock, which is ahead of the loudspeaker. */
  began(responseId, atS) {
    const cameMs = this.came.get(responseId);
    this.came.delete(responseId);
    if (cameMs === undefined) return;
    const heardMs = this.heardAtMs(atS);
    const tell = () => this.onHeard(responseId, Math.max(0, heardMs - cameMs));
    setTimeout(tell, Math.max(0, heardMs - performance.now())); // it is told of what has happened
  }

  /** The page's time at which a sample of the graph's clock is heard. */
  heardAtMs(atS) {
    const { context } = this;
    const after = (latencyS) => performance.now() + 1_000 * (atS - context.currentTime + latencyS);
    if (OUTPUT_HANGS) return after(ASSUMED_LATENCY_S);
    const { contextTime, performanceTime } = context.getOutputTimestamp?.() ?? {};
    if (contextTime > 0 && performanceTime > 0) return performanceTime + 1_000 * (atS - contextTime);
    return after(context.outputLatency || context.baseLatency || 0);
  }

  /** Plays on the speaker that was chosen since. */
  async reroute() {
    await useSpeaker(this.context);
  }

  /**
   * @param {string} id of the item
   * @param {Int16Array} pcm its next sound
   * @param {?string} responseId whose it is
   */
  push(id, pcm, responseId = null) {
    const isFirst = responseId !== null && responseId !== this.newest;
    if (isFirst) {
      this.newest = responseId;
      this.came.set(responseId, performance.now());
      if (this.came.size > MAX_UNHEARD) this.came.delete(this.came.keys().next().value);
    }
    const start = this.answers.at(-1)?.end ?? 0;
    if (this.answers.at(-1)?.id !== id) this.answers.push({ id, start, end: start });
    this.answers.at(-1).end += pcm.length;
    const piece = isFirst ? { pcm, mark: responseId } : pcm;
    if (this.node) this.node.port.postMessage(piece, [pcm.buffer]);
    else this.early.push(piece);
    this.open();
  }

  /**
   * Stands still, or goes on from there: it is not known yet whether somebody interrupts. `onHeld`
   * is told after how many ms the loudspeaker is silent, if anything was being played.
   */
  hold(held) {
    clearTimeout(this.holding);
    if (held) this.holding = setTimeout(() => this.hold(false), LONGEST_HOLD_MS);
    if (held && !this.held) this.heldAtMs = performance.now();
    this.held = held;
    this.node?.port.postMessage(held ? "hold" : "go on");
  }

  /**
   * Silence, at once.
   * @returns {?{id: string, playedMs: number}} the answer that was cut, and what was heard of it
   */
  clear() {
    const cut = this.answers.find(({ end }) => this.played < end);
    const heard = cut && Math.max(0, this.played - cut.start);
    clearTimeout(this.holding);
    this.held = false;
    this.answers = [];
    this.early = [];
    this.came.clear();
    this.played = 0;
    if (this.node) {
      this.stale += 1;
      this.node.port.postMessage("clear");
    }
    return cut ? { id: cut.id, playedMs: Math.floor((heard * 1_000) / RATE_HZ) } : null;
  }
}
