// Sketches over time: one a second and stage, merged to one in ten seconds after five minutes, and
// dropped after an hour. So an hour of any traffic has a bounded size.
//
// Whole ten seconds are packed into one array of numbers: as Maps they would be most of the page's
// memory, and grow for an hour before the bound is reached.

import { Sketch } from "./sketch.js";

const FINE_S = 1;
const COARSE_S = 10;
const FINE_FOR_S = 300;
const KEPT_S = 3_600;

export class Series {
  constructor() {
    this.fine = new Map(); // second -> Map(stage -> Sketch)
    this.coarse = new Map(); // its first second, a multiple of ten -> the same, or packed
    this.loose = new Set(); // keys of coarse slots that are not packed
    this.stages = []; // by their number in packed slots
    this.newest = -Infinity;
  }

  /** @param {number} atS of the turn, in s since 1970 */
  add(atS, valuesMs) {
    const second = Math.floor(atS);
    this.age(second);
    if (second < this.newest - KEPT_S) return;
    const slot = this.slotOf(second, true);
    for (const [stage, ms] of valuesMs) sketchOf(slot, stage).add(ms);
  }

  remove(atS, valuesMs) {
    const slot = this.slotOf(Math.floor(atS), false);
    for (const [stage, ms] of valuesMs) slot?.get(stage)?.remove(ms);
  }

  /** The slot of a second, to be changed. */
  slotOf(second, make) {
    const first = second - (second % COARSE_S);
    const isFine = second >= this.newest - FINE_FOR_S;
    if (isFine && (make || this.fine.has(second))) {
      if (!this.fine.has(second)) this.fine.set(second, new Map());
      return this.fine.get(second);
    }
    return make || this.coarse.has(first) ? this.loosened(first) : undefined;
  }

  loosened(first) {
    const slot = this.coarse.get(first) ?? new Map();
    if (slot instanceof Map) this.coarse.set(first, slot);
    else {
      const unpacked = new Map();
      this.mergePacked(unpacked, slot);
      this.coarse.set(first, unpacked);
    }
    this.loose.add(first);
    return this.coarse.get(first);
  }

  /** Time goes on to `second`: what is old is merged, what is too old goes. */
  age(second) {
    if (second <= this.newest) return;
    this.newest = second;
    for (const [key, slot] of this.fine) {
      if (key >= second - FINE_FOR_S) continue;
      this.fine.delete(key);
      this.mergeSlot(this.loosened(key - (key % COARSE_S)), slot);
    }
    for (const key of this.loose) {
      if (key + COARSE_S > second - FINE_FOR_S) continue; // more of it may come
      this.coarse.set(key, this.packed(this.coarse.get(key)));
      this.loose.delete(key);
    }
    for (const key of this.coarse.keys()) {
      if (key >= second - KEPT_S) continue;
      this.coarse.delete(key);
      this.loose.delete(key);
    }
  }

  /** A slot as numbers: of each stage its number, how many buckets, and these with their counts. */
  packed(slot) {
    const numbers = [];
    for (const [stage, { buckets }] of slot) {
      let number = this.stages.indexOf(stage);
      if (number < 0) number = this.stages.push(stage) - 1;
      numbers.push(number, buckets.size);
      for (const [bucket, n] of buckets) numbers.push(bucket, n);
    }
    return Int32Array.from(numbers);
  }

  mergePacked(into, packed) {
    for (let at = 0; at < packed.length; ) {
      const sketch = sketchOf(into, this.stages[packed[at]]);
      const end = at + 2 + 2 * packed[at + 1];
      for (at += 2; at < end; at += 2) sketch.count(packed[at], packed[at + 1]);
    }
  }

  mergeSlot(into, slot) {
    if (!(slot instanceof Map)) this.mergePacked(into, slot);
    else for (const [stage, sketch] of slot) sketchOf(into, stage).merge(sketch);
  }

  /** The first second that anything is known of; Infinity for nothing. */
  oldest() {
    return Math.min(...this.coarse.keys(), ...this.fine.keys());
  }

  *slots(fromS, toS) {
    for (const [key, slot] of this.coarse)
      if (key + COARSE_S > fromS && key < toS) yield [key, slot];
    for (const [key, slot] of this.fine) if (key + FINE_S > fromS && key < toS) yield [key, slot];
  }

  /** @returns {Map<string, Sketch>} by stage, of [fromS, toS) */
  between(fromS, toS) {
    const all = new Map();
    for (const [, slot] of this.slots(fromS, toS)) this.mergeSlot(all, slot);
    return all;
  }

  /**
   * All stages in columns of equal length that end at `toS`, each with the `roll` columns before it
   * merged in: so that few turns make a line, too.
   * @returns {{at: number, stages: Map<string, Sketch>}[]} `at`: the column's end
   */
  columns(fromS, toS, number, roll = 0) {
    const widthS = (toS - fromS) / number;
    const firstS = fromS - roll * widthS;
    const plain = Array.from({ length: number + roll }, () => new Map());
    for (const [key, slot] of this.slots(firstS, toS)) {
      const at = Math.floor((key - firstS) / widthS);
      this.mergeSlot(plain[Math.min(plain.length - 1, Math.max(0, at))], slot);
    }
    return Array.from({ length: number }, (_, i) => {
      const stages = new Map();
      for (let j = i; j <= i + roll; j += 1) this.mergeSlot(stages, plain[j]);
      return { at: fromS + (i + 1) * widthS, stages };
    });
  }
}

function sketchOf(slot, stage) {
  if (!slot.has(stage)) slot.set(stage, new Sketch());
  return slot.get(stage);
}
