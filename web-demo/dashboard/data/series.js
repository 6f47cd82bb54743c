// Sketches over time: one a second and stage, merged to one in ten seconds after five minutes, and
// dropped after an hour. So an hour of any traffic has a bounded size.

import { Sketch } from "./sketch.js";

const FINE_S = 1;
const COARSE_S = 10;
const FINE_FOR_S = 300;
const KEPT_S = 3_600;

export class Series {
  constructor() {
    this.fine = new Map(); // second -> Map(stage -> Sketch)
    this.coarse = new Map(); // its first second, a multiple of ten -> the same
    this.newest = -Infinity;
  }

  /** @param {number} atS of the turn, in s since 1970 */
  add(atS, valuesMs, id) {
    const second = Math.floor(atS);
    this.age(second);
    if (second < this.newest - KEPT_S) return;
    const slot = this.slotOf(second, true);
    for (const [stage, ms] of valuesMs) {
      if (!slot.has(stage)) slot.set(stage, new Sketch());
      slot.get(stage).add(ms, id);
    }
  }

  remove(atS, valuesMs, id) {
    const slot = this.slotOf(Math.floor(atS), false);
    for (const [stage, ms] of valuesMs) slot?.get(stage)?.remove(ms, id);
  }

  slotOf(second, make) {
    const isFine = second >= this.newest - FINE_FOR_S;
    const slots = isFine ? this.fine : this.coarse;
    const key = isFine ? second : second - (second % COARSE_S);
    if (!slots.has(key) && make) slots.set(key, new Map());
    return slots.get(key) ?? this.coarse.get(second - (second % COARSE_S));
  }

  /** Time goes on to `second`: what is old is merged, what is too old goes. */
  age(second) {
    if (second <= this.newest) return;
    this.newest = second;
    for (const [key, slot] of this.fine) {
      if (key >= second - FINE_FOR_S) continue;
      this.fine.delete(key);
      const first = key - (key % COARSE_S);
      if (this.coarse.has(first)) mergeSlot(this.coarse.get(first), slot);
      else this.coarse.set(first, slot);
    }
    for (const key of this.coarse.keys()) if (key < second - KEPT_S) this.coarse.delete(key);
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
    for (const [, slot] of this.slots(fromS, toS)) mergeSlot(all, slot);
    return all;
  }

  /**
   * All stages in columns of equal length that end at `toS`, each with the `roll` columns before it
   * merged in: so that few turns make a line, too. Without ids: `between` has them.
   * @returns {{at: number, stages: Map<string, Sketch>}[]} `at`: the column's end
   */
  columns(fromS, toS, number, roll = 0) {
    const widthS = (toS - fromS) / number;
    const firstS = fromS - roll * widthS;
    const plain = Array.from({ length: number + roll }, () => new Map());
    for (const [key, slot] of this.slots(firstS, toS)) {
      const at = Math.floor((key - firstS) / widthS);
      mergeSlot(plain[Math.min(plain.length - 1, Math.max(0, at))], slot, false);
    }
    return Array.from({ length: number }, (_, i) => {
      const stages = new Map();
      for (let j = i; j <= i + roll; j += 1) mergeSlot(stages, plain[j], false);
      return { at: fromS + (i + 1) * widthS, stages };
    });
  }
}

function mergeSlot(into, slot, withIds = true) {
  for (const [stage, sketch] of slot) {
    if (!into.has(stage)) into.set(stage, new Sketch());
    into.get(stage).merge(sketch, withIds);
  }
}
