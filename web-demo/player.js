// Plays spoken answers that come as events (over a WebSocket; a call plays its own track).

import { RATE_HZ } from "./protocol.js";

export class Player {
  /** @param {(playedMs: number, playing: boolean) => void} onPlayed told every 20 ms of sound */
  constructor(onPlayed) {
    this.onPlayed = onPlayed;
    this.context = null;
    this.node = null;
    this.early = []; // pieces from before the graph stood
    this.opening = null;
    this.answers = []; // {id, start, end}: samples since the last clear, oldest first
    this.played = 0;
    this.stale = 0; // clears the worklet has not answered yet: its reports are of before
  }

  get playing() {
    return this.answers.length > 0 && this.played < this.answers.at(-1).end;
  }

  /** Browsers let a page sound only once the person has touched it: call it from a click, too. */
  async open() {
    this.opening ??= this.build();
    await this.opening;
    await this.context.resume();
  }

  async build() {
    this.context = new AudioContext({ sampleRate: RATE_HZ });
    await this.context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
    this.node = new AudioWorkletNode(this.context, "player", { numberOfInputs: 0 });
    this.node.port.onmessage = ({ data }) => this.report(data);
    this.node.connect(this.context.destination);
    for (const piece of this.early.splice(0)) this.node.port.postMessage(piece);
  }

  report({ cleared, played }) {
    if (cleared) this.stale -= 1;
    else if (this.stale === 0) this.played = played;
    this.onPlayed((this.played * 1_000) / RATE_HZ, this.playing);
  }

  /** @param {Int16Array} pcm the next sound of the answer `id` */
  push(id, pcm) {
    const start = this.answers.at(-1)?.end ?? 0;
    if (this.answers.at(-1)?.id !== id) this.answers.push({ id, start, end: start });
    this.answers.at(-1).end += pcm.length;
    if (this.node) this.node.port.postMessage(pcm, [pcm.buffer]);
    else this.early.push(pcm);
    this.open();
  }

  /**
   * Silence, at once.
   * @returns {?{id: string, playedMs: number}} the answer that was cut, and what was heard of it
   */
  clear() {
    const cut = this.answers.find(({ end }) => this.played < end);
    const heard = cut && Math.max(0, this.played - cut.start);
    this.answers = [];
    this.early = [];
    this.played = 0;
    if (this.node) {
      this.stale += 1;
      this.node.port.postMessage("clear");
    }
    return cut ? { id: cut.id, playedMs: Math.floor((heard * 1_000) / RATE_HZ) } : null;
  }
}
