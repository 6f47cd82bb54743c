// Percentiles of a stream in bounded space: a histogram whose buckets grow by 2 %, so that what is
// read from it is off by at most 1 %. Two sketches add up to one, whatever they saw.

const GAMMA = 1.02;
const LOG_GAMMA = Math.log(GAMMA);
const LEAST_MS = 0.01; // whatever is less counts as nothing
const ZERO = -1_000; // the bucket of nothing
export const IDS_PER_BUCKET = 4;

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

const NO_IDS = Object.freeze([]);

export class Sketch {
  constructor() {
    this.n = 0;
    this.keys = null; // of the buckets, rising; null: not sorted since the last change
    this.buckets = new Map(); // bucket -> { n, ids }
  }

  /** @param {string} id of the turn that the value is of; a bucket keeps the newest four */
  add(ms, id) {
    const key = bucketOf(ms);
    let bucket = this.buckets.get(key);
    this.keys = null;
    if (!bucket) this.buckets.set(key, (bucket = { n: 0, ids: [] }));
    bucket.n += 1;
    bucket.ids.push(id);
    if (bucket.ids.length > IDS_PER_BUCKET) bucket.ids.shift();
    this.n += 1;
  }

  /** Takes back what `add` was told: the turn came again, with more known about it. */
  remove(ms, id) {
    const key = bucketOf(ms);
    const bucket = this.buckets.get(key);
    if (!bucket) return;
    this.keys = null;
    bucket.n -= 1;
    bucket.ids = bucket.ids.filter((other) => other !== id);
    if (bucket.n === 0) this.buckets.delete(key);
    this.n -= 1;
  }

  /** Adds another sketch to this one. `withIds`: false for what is only drawn, which is cheaper. */
  merge(other, withIds = true) {
    this.n += other.n;
    this.keys = null;
    for (const [key, { n, ids }] of other.buckets) {
      const bucket = this.buckets.get(key);
      if (!bucket) {
        this.buckets.set(key, { n, ids: withIds ? ids.slice() : NO_IDS });
        continue;
      }
      bucket.n += n;
      if (withIds) bucket.ids = [...bucket.ids, ...ids].slice(-IDS_PER_BUCKET);
    }
    return this;
  }

  /**
   * @param {number} q 0 to 1, by nearest rank
   * @returns {{ms: number, bucket: number, ids: string[]} | null} null for an empty sketch
   */
  quantile(q) {
    if (this.n === 0) return null;
    const rank = Math.max(1, Math.ceil(q * this.n));
    let seen = 0;
    this.keys ??= [...this.buckets.keys()].sort((a, b) => a - b);
    for (const key of this.keys) {
      const { n, ids } = this.buckets.get(key);
      seen += n;
      if (seen >= rank) return { ms: middleOf(key), bucket: key, ids };
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
