// A recording as a feed: at its own pace or another, paused, turn by turn, or all at once.

import { Store } from "../data/store.js";
import { Reader } from "./reader.js";

export const RATES = [0.25, 0.5, 1, 2, 5, 10];
const BREATHE_MS = 12; // how long the page may stand still while a file is read
const TICK_MS = 100;

const pause = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms));

export class Player {
  /**
   * @param {File} file
   * @param {{onChange: Function}} listener called when something is new, at most as often as it is
   */
  constructor(file, listener) {
    this.file = file;
    this.listener = listener;
    this.rate = 1;
    this.isPlaying = false;
    this.isLoading = false;
    this.firstMs = null; // at_ms of the first message behind the ring
    this.lastMs = null; // of the last one; known when all was read once
    this.turns = 0;
    this.run = 0; // each start over has its number; an older one stops
    this.busy = Promise.resolve(); // one reads at a time
    this.rewind();
  }

  rewind() {
    this.run += 1;
    this.store = new Store();
    this.reader = new Reader(this.file);
    this.messages = this.reader.messages();
    this.next = null; // read, but not yet due
    this.atMs = this.firstMs; // where the replay is
    this.isAtEnd = false;
  }

  /** One message more, or null at the end. */
  async peek() {
    if (this.next === null && !this.isAtEnd) {
      const run = this.run;
      const { done, value } = await this.messages.next();
      if (run !== this.run) return null;
      if (done) this.isAtEnd = true;
      else this.next = value;
    }
    return this.next;
  }

  take() {
    const message = this.next;
    this.next = null;
    this.store.apply(message);
    if (message.type !== "hello" && this.store.isLive && Number.isFinite(message.at_ms)) {
      this.firstMs ??= message.at_ms;
      this.atMs = message.at_ms;
    }
    return message;
  }

  /** Reads on, without waiting, while `wanted(message)` holds. Throws RecordingError. */
  readWhile(wanted) {
    const run = this.run;
    const done = this.busy.then(() => this.readOn(wanted, run));
    this.busy = done.catch(() => {}); // whoever asked is told
    return done;
  }

  async readOn(wanted, run) {
    if (run !== this.run) return;
    this.isLoading = true;
    let breathed = performance.now();
    try {
      for (;;) {
        const message = await this.peek();
        if (run !== this.run || message === null || !wanted(message)) break;
        this.take();
        if (performance.now() - breathed > BREATHE_MS) {
          this.listener.onChange();
          await pause();
          breathed = performance.now();
        }
      }
    } finally {
      if (run === this.run) this.isLoading = false;
    }
    this.listener.onChange();
  }

  /** All of it at once: what the file ends with is shown. */
  async load() {
    await this.readWhile(() => true);
    if (this.isAtEnd) {
      this.lastMs = this.atMs;
      this.turns = this.store.turnsSeen;
    }
  }

  stop() {
    this.run += 1;
    this.isPlaying = false;
    this.isLoading = false;
    this.messages.return?.();
  }

  /** To an instant of the recording, in its own ms; back means from the start again. */
  async seek(ms) {
    if (this.atMs === null || ms < this.atMs) this.rewind();
    await this.readWhile((message) => !this.store.isLive || !(message.at_ms > ms));
    this.atMs = ms;
    this.listener.onChange();
  }

  /** Up to and with the next turn. */
  async step() {
    this.isPlaying = false;
    if (this.isAtEnd) return;
    let found = false;
    await this.readWhile((message) => {
      if (found) return false;
      // A turn that comes again with more known about it is no new one.
      found = message.type === "turn" && this.store.isLive && !this.store.turns.has(message.id);
      return true;
    });
  }

  async play() {
    if (this.isPlaying) return;
    if (this.isAtEnd) await this.seek(this.firstMs ?? 0);
    this.isPlaying = true;
    this.listener.onChange();
    let then = performance.now();
    while (this.isPlaying && !this.isAtEnd) {
      const now = performance.now();
      const target = (this.atMs ?? this.firstMs ?? 0) + (now - then) * this.rate;
      then = now;
      const run = this.run;
      await this.readWhile((message) => !this.store.isLive || !(message.at_ms > target));
      if (run !== this.run) continue; // a seek: from there
      this.atMs = this.isAtEnd ? this.atMs : target;
      await pause(TICK_MS);
    }
    this.isPlaying = false;
    this.listener.onChange();
  }
}
