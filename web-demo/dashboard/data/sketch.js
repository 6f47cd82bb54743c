// Percentiles of a stream in bounded space: a histogram whose buckets grow by 2 %, so that what is
// read from it is off by at most 1 %. Two sketches add up to one, whatever they saw.

const GAMMA = 1.02;
const LOG_GAMMA = Math.log(GAMMA);
const LEAST_MS = 0.01; // whatever is less counts as nothing
const ZERO = -1_000; // the bucket of nothing

// Below so many values a percentile would be one turn's accident.
export const NEEDED = new Map([
  [0.5, 1],
  [0.95, 20],
  [0.99, 100],
]);

export function bucketOf(ms) {
  return ms <= LEAST_MS ? ZERO : Math.ceil(Math.log(ms / LEAST_MS) / LOG_GAMMA);
}

/** A bucket's bounds in ms: above the first, up to the second. */
export function boundsOf(bucket) {
  if (bucket === ZERO) return [0, LEAST_MS];
  return [LEAST_MS * GAMMA ** (bucket - 1), LEAST_MS * GAMMA ** bucket];
}

function middleOf(bucket) {
  const [low, high] = boundsOf(bucket);
  return bucket === ZERO ? 0 : Math.sqrt(low * high);
}

export class Sketch {
  constructor() {
    this.n = 0;
    this.keys = null; // of the buckets, rising; null: not sorted since the last change
    this.buckets = new Map(); // bucket -> how many values
  }

  add(ms) {
    this.count(bucketOf(ms), 1);
  }

  /** Takes back what `add` was told: the turn came again, with more known about it. */
  remove(ms) {
    const bucket = bucketOf(ms);
    if (this.buckets.has(bucket)) this.count(bucket, -1);
  }

  /** Adds `n` values to a bucket. */
  count(bucket, n) {
    const sum = (this.buckets.get(bucket) ?? 0) + n;
    if (sum) this.buckets.set(bucket, sum);
    else this.buckets.delete(bucket);
    this.keys = null;
    this.n += n;
  }

  /** Adds another sketch to this one. */
  merge(other) {
    for (const [bucket, n] of other.buckets) this.count(bucket, n);
    return this;
  }

  /** How many values are in `bucket` or above it. */
  above(bucket) {
    let sum = 0;
    for (const [key, n] of this.buckets) if (key >= bucket) sum += n;
    return sum;
  }

  /**
   * @param {number} q 0 to 1, by nearest rank
   * @returns {{ms: number, bucket: number} | null} null for an empty sketch
   */
  quantile(q) {
    if (this.n === 0) return null;
    const rank = Math.max(1, Math.ceil(q * this.n));
    let seen = 0;
    this.keys ??= [...this.buckets.keys()].sort((a, b) => a - b);
    for (const bucket of this.keys) {
      seen += this.buckets.get(bucket);
      if (seen >= rank) return { ms: middleOf(bucket), bucket };
    }
    return null;
  }

  /** The quantile, or null where there are too few values for it to mean anything. */
  trusted(q) {
    return this.n < (NEEDED.get(q) ?? 1) ? null : this.quantile(q);
  }
}

/** "n = 37, no p99": why a quantile is not shown. */
export function tooFew(n, q) {
  return `n = ${n}, no p${Math.round(100 * q)}`;
}
