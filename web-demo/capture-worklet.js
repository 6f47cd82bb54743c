// The microphone's half that runs on the audio thread: any rate in, 40 ms packets of PCM16 out.

import { PACKET_SAMPLES, RATE_HZ, toPcm16 } from "./protocol.js";
import { Resampler } from "./resampler.js";

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE_HZ); // sampleRate: the worklet's own global
    this.packet = new Float32Array(PACKET_SAMPLES);
    this.filled = 0;
  }

  process(inputs) {
    const channels = inputs[0];
    if (channels.length > 0) this.take(this.resampler.push(mono(channels)));
    return true;
  }

  take(samples) {
    let at = 0;
    while (at < samples.length) {
      const count = Math.min(samples.length - at, PACKET_SAMPLES - this.filled);
      this.packet.set(samples.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === PACKET_SAMPLES) {
        const pcm = toPcm16(this.packet);
        this.port.postMessage(pcm, [pcm.buffer]);
        this.filled = 0;
      }
    }
  }
}

/** The mean of all channels. */
function mono(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, i) => channels.reduce((sum, c) => sum + c[i], 0) / channels.length);
}

registerProcessor("capture", Capture);
