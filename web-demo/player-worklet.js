// The loudspeaker's half that runs on the audio thread: PCM16 pieces in, sound out, samples counted.
// A piece is an Int16Array, or {pcm, mark}: then the instant at which it begins is told.

const REPORT_SAMPLES = 480; // 20 ms: how exactly the page knows what was heard
const MAX_QUEUED_SAMPLES = 24_000 * 120; // two minutes; more is dropped

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.marks = new Map(); // piece → its mark, until it begins
    this.pieces = []; // Int16Arrays, the first one from `at` on still to be played
    this.at = 0;
    this.queued = 0;
    this.played = 0; // since the last clear
    this.reported = 0;
    this.held = false;
    this.port.onmessage = ({ data }) => this.told(data);
  }

  told(data) {
    if (data === "hold") this.hold();
    else if (data === "go on") this.held = false;
    else if (data === "clear") this.clear();
    else this.take(data);
  }

  take(data) {
    const piece = data.pcm ?? data;
    if (this.queued + piece.length > MAX_QUEUED_SAMPLES) return;
    if (data.mark) this.marks.set(piece, data.mark);
    this.pieces.push(piece);
    this.queued += piece.length;
  }

  /** Tells exactly what was played, and when it stopped. */
  hold() {
    if (this.held) return;
    this.held = true;
    this.reported = this.played;
    this.port.postMessage({ played: this.played, queued: this.queued, held: true, atS: currentTime });
  }

  clear() {
    this.marks.clear();
    this.pieces = [];
    this.held = false;
    this.at = this.queued = this.played = this.reported = 0;
    this.port.postMessage({ cleared: true });
  }

  process(_, outputs) {
    if (this.held) return true; // its output is silence by itself
    const channels = outputs[0];
    const [out] = channels;
    let filled = 0;
    while (filled < out.length && this.pieces.length > 0) {
      const [piece] = this.pieces;
      if (this.marks.has(piece)) this.begins(piece, filled);
      const count = Math.min(out.length - filled, piece.length - this.at);
      for (let i = 0; i < count; i += 1) out[filled + i] = piece[this.at + i] / 0x8000;
      filled += count;
      this.at += count;
      if (this.at === piece.length) {
        this.pieces.shift();
        this.at = 0;
      }
    }
    for (const channel of channels.slice(1)) channel.set(out);
    this.queued -= filled;
    this.played += filled;
    this.report(filled > 0 && this.queued === 0);
    return true;
  }

  /** `currentTime` and `sampleRate` are the worklet's own globals. */
  begins(piece, offset) {
    this.port.postMessage({ began: this.marks.get(piece), atS: currentTime + offset / sampleRate });
    this.marks.delete(piece);
  }

  report(dry) {
    if (!dry && this.played - this.reported < REPORT_SAMPLES) return;
    this.reported = this.played;
    this.port.postMessage({ played: this.played, queued: this.queued });
  }
}

registerProcessor("player", Player);
