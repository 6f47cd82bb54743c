// The microphone as a stream of PCM16 packets.

import { needDevices, openMedia } from "./media.js";
import { RATE_HZ } from "./protocol.js";

// Whoever listens is a recogniser, which knows noise better than what is left of words behind a
// filter against it. Echo goes, for answers are played aloud; gain stays, for those who sit far off.
export const WANTED = {
  echoCancellation: true,
  noiseSuppression: false,
  autoGainControl: true,
  channelCount: 1,
};

/** The worklet did not come: each graph asks the server for it. `name` is a key of media.js's REASONS. */
class PartMissing extends Error {
  name = "PartMissing";
}

/** An audio graph with the worklet in it; without `rateHz`, at the browser's own rate. */
async function openGraph(rateHz) {
  const context = new AudioContext(rateHz ? { sampleRate: rateHz } : {});
  try {
    await context.audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
  } catch {
    await context.close();
    throw new PartMissing();
  }
  return context;
}

/** Somebody closed the microphone before it was open. */
export class GivenUp extends Error {}

export class Microphone {
  /**
   * @param {(pcm: Int16Array) => void} onPacket called every 40 ms while open
   * @param {() => void} onLost called when the device goes away by itself
   * @param {(silenced: boolean) => void} onSilenced told when the system takes the sound away, as
   *   a phone does for a call, and when it gives it back
   */
  constructor(onPacket, onLost, onSilenced = () => {}) {
    this.onPacket = onPacket;
    this.onLost = onLost;
    this.onSilenced = onSilenced;
    this.stream = null;
    this.context = null;
    this.opened = 0; // how often: what was begun before the last `close` is not wanted any more
  }

  /** @returns {?MediaStreamTrack} the open microphone */
  get track() {
    return this.stream?.getAudioTracks()[0] ?? null;
  }

  /**
   * The graph comes before the microphone, so that none of its sound is missed.
   * @param {(asking: boolean) => void} onAsking as `openMedia`'s
   */
  async open(onAsking) {
    this.opened += 1;
    const mine = this.opened;
    needDevices();
    const context = await openGraph(RATE_HZ);
    if (mine !== this.opened) {
      await context.close();
      throw new GivenUp();
    }
    this.context = context;
    const stream = await openMedia("microphone", WANTED, onAsking);
    if (mine !== this.opened) {
      stream.getTracks().forEach((track) => track.stop());
      throw new GivenUp();
    }
    this.stream = stream;
    this.track.addEventListener("ended", this.onLost);
    this.track.addEventListener("mute", () => this.onSilenced(true));
    this.track.addEventListener("unmute", () => this.onSilenced(false));
    const source = await this.connect();
    const capture = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) => this.onPacket(data);
    source.connect(capture);
    await this.context.resume();
  }

  /** A browser that will not convert the rate gets a graph at its own; the worklet converts. */
  async connect() {
    try {
      return this.context.createMediaStreamSource(this.stream);
    } catch (error) {
      if (error.name !== "NotSupportedError") throw error;
      await this.context.close();
      this.context = await openGraph();
      return this.context.createMediaStreamSource(this.stream);
    }
  }

  async close() {
    const { stream, context } = this;
    this.opened += 1;
    this.stream = null;
    this.context = null;
    stream?.getTracks().forEach((track) => track.stop());
    await context?.close();
  }
}

/** Loudness of a packet, 0 (silence) to 1 (full scale), on a scale that follows the ear. */
export function level(pcm) {
  let energy = 0;
  for (const sample of pcm) energy += sample * sample;
  const decibels = 10 * Math.log10(energy / pcm.length / 0x7fff ** 2 + 1e-9);
  return Math.max(0, Math.min(1, (decibels + 60) / 50));
}
