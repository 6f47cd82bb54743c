// The microphone as a stream of PCM16 packets.

import { RATE_HZ } from "./protocol.js";

// Whoever listens is a recogniser, which knows noise better than what is left of words behind a
// filter against it. Echo goes, for answers are played aloud; gain stays, for those who sit far off.
const WANTED = {
  echoCancellation: true,
  noiseSuppression: false,
  autoGainControl: true,
  channelCount: 1,
};

const REASONS = {
  NotAllowedError: "The microphone was not allowed. Allow it in the address bar, then try again.",
  NotFoundError: "No microphone was found. Connect one, then try again.",
  NotReadableError: "The microphone is in use by another program. Close that, then try again.",
};

/** Says in one sentence why the microphone or camera did not open. */
export function whyNot(error, device = "microphone") {
  const reason = REASONS[error.name] ?? `The microphone did not open: ${error.message}.`;
  const instead = device === "microphone" ? " Or type your question." : "";
  return reason.replaceAll("microphone", device) + instead;
}

export function openMedia(constraints) {
  if (!navigator.mediaDevices) {
    throw new Error("browsers give it only to https pages and to localhost");
  }
  return navigator.mediaDevices.getUserMedia(constraints);
}

/** An audio graph with the worklet in it; without `rateHz`, at the browser's own rate. */
async function openGraph(rateHz) {
  const context = new AudioContext(rateHz ? { sampleRate: rateHz } : {});
  await context.audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
  return context;
}

export class Microphone {
  /**
   * @param {(pcm: Int16Array) => void} onPacket called every 40 ms while open
   * @param {() => void} onLost called when the device goes away by itself
   */
  constructor(onPacket, onLost) {
    this.onPacket = onPacket;
    this.onLost = onLost;
    this.stream = null;
    this.context = null;
  }

  /** @returns {?MediaStreamTrack} the open microphone */
  get track() {
    return this.stream?.getAudioTracks()[0] ?? null;
  }

  /** The graph comes before the microphone, so that none of its sound is missed. */
  async open() {
    this.context = await openGraph(RATE_HZ);
    this.stream = await openMedia({ audio: WANTED });
    this.track.addEventListener("ended", this.onLost);
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
