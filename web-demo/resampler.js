// Streaming sample-rate conversion: a windowed-sinc low-pass read at fractional positions from a
// table, since sines are too dear for the audio thread.
//
// Needed where the browser will not run its audio graph at 24 kHz (Firefox, some Bluetooth sets).
// The cut-off lies below the lower of the two Nyquist rates, so that nothing folds back.

const LOBES = 16; // sinc zero crossings on each side: about 80 dB of stop band with this window
const ROLL_OFF = 0.92; // share of the Nyquist rate that is kept
const TABLE_STEPS = 256; // per input sample; read with linear interpolation, error below -90 dB

function blackman(x) {
  return 0.42 + 0.5 * Math.cos(Math.PI * x) + 0.08 * Math.cos(2 * Math.PI * x);
}

/** The low-pass's impulse response at i / TABLE_STEPS input samples from its centre. */
function kernel(cutoff, reach) {
  const table = new Float64Array(Math.ceil(reach * TABLE_STEPS) + 2);
  for (let i = 0; i < reach * TABLE_STEPS; i += 1) {
    const t = (Math.PI * cutoff * i) / TABLE_STEPS;
    const sinc = t === 0 ? 1 : Math.sin(t) / t;
    table[i] = cutoff * sinc * blackman(i / TABLE_STEPS / reach);
  }
  return table;
}

export class Resampler {
  /** @param {number} fromHz @param {number} toHz */
  constructor(fromHz, toHz) {
    this.step = fromHz / toHz; // input samples per output sample
    const cutoff = ROLL_OFF * Math.min(1, toHz / fromHz); // of the input's Nyquist rate
    this.reach = LOBES / cutoff; // input samples on each side of an output sample
    this.table = kernel(cutoff, this.reach);
    this.lead = Math.ceil(this.reach);
    this.held = new Float32Array(this.lead); // input not yet done with, after `lead` zeros
    this.at = this.lead; // position in `held` of the next output sample
  }

  /** Takes the next input samples and returns the output samples they complete. */
  push(input) {
    if (this.step === 1) return Float32Array.from(input);
    const samples = new Float32Array(this.held.length + input.length);
    samples.set(this.held);
    samples.set(input, this.held.length);
    const output = [];
    while (this.at + this.reach < samples.length) {
      output.push(this.sampleAt(samples, this.at));
      this.at += this.step;
    }
    const done = Math.max(0, Math.floor(this.at) - this.lead);
    this.held = samples.slice(done);
    this.at -= done;
    return Float32Array.from(output);
  }

  /** The band-limited signal at a fractional position of `samples`. */
  sampleAt(samples, position) {
    let sum = 0;
    const last = Math.min(samples.length - 1, Math.floor(position + this.reach));
    for (let i = Math.max(0, Math.ceil(position - this.reach)); i <= last; i += 1) {
      const x = Math.abs(position - i) * TABLE_STEPS;
      const entry = Math.floor(x);
      const below = this.table[entry];
      sum += samples[i] * (below + (this.table[entry + 1] - below) * (x - entry));
    }
    return sum;
  }
}
