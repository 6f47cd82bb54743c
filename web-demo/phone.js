// What phones want of a page that talks: the right audio session, a screen that stays on, and a tap
// after something else had the sound.

/** iOS routes sound by what the page is for: while a microphone is open, both ways. */
export function setAudioSession(talks) {
  if (navigator.audioSession) navigator.audioSession.type = talks ? "play-and-record" : "auto";
}

/** Keeps the screen on while it is wanted. Browsers drop the lock when the page is hidden. */
export class WakeLock {
  constructor() {
    this.wanted = false;
    this.lock = null;
    document.addEventListener("visibilitychange", () => this.settle());
  }

  want(wanted) {
    this.wanted = wanted;
    return this.settle();
  }

  async settle() {
    if (!navigator.wakeLock) return;
    if (!this.wanted) {
      const { lock } = this;
      this.lock = null;
      await lock?.release();
    } else if (document.visibilityState === "visible" && (this.lock === null || this.lock.released)) {
      try {
        this.lock = await navigator.wakeLock.request("screen");
      } catch {
        this.lock = null; // the battery is low, or the system forbids it: the screen may go dark
      }
      if (!this.wanted) await this.settle();
    }
  }
}

/** Audio graphs that something else may silence: a phone call, Siri, another app. */
export class Graphs {
  /** @param {(silenced: boolean) => void} onChange whether a tap is needed to go on */
  constructor(onChange) {
    this.onChange = onChange;
    this.watched = new Set();
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.resume();
    });
  }

  /** @param {AudioContext} context one that should be running */
  watch(context) {
    if (!context || this.watched.has(context)) return;
    this.watched.add(context);
    context.addEventListener("statechange", () => {
      if (context.state === "closed") this.watched.delete(context);
      this.tell();
    });
  }

  get silenced() {
    return [...this.watched].some(({ state }) => state === "interrupted");
  }

  tell() {
    this.onChange(this.silenced);
  }

  /** From a tap: everything sounds again. */
  async resume() {
    const stopped = [...this.watched].filter(({ state }) => state !== "running");
    await Promise.allSettled(stopped.map((context) => context.resume()));
    this.tell();
  }
}
