// Two runs side by side: by stage the middle and the slow end, what changed, and how sure that is.

import { inOrder } from "../stages.js";
import { clipOf } from "./turn.js";

const RESAMPLES = 500;
const USED_MAX = 1_000; // values of a stage: the newest
const PAIRS_NEEDED = 10;
const SEED = 0x5eed;
export const QUANTILES = [0.5, 0.95];
const NEEDED = new Map([
  [0.5, 5],
  [0.95, 20],
]);

/** A generator of numbers in [0, 1): the same ones each time (mulberry32). */
export function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** By nearest rank; `sorted` rises and is not empty. */
export function quantile(sorted, q) {
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)];
}

const rising = (values) => Float64Array.from(values).sort();

/** A resample's quantile out of counts: sorted values need not be sorted again. */
function quantileOfCounts(sorted, counts, q) {
  const rank = Math.max(1, Math.ceil(q * sorted.length));
  let seen = 0;
  for (let i = 0; i < sorted.length; i += 1) {
    seen += counts[i];
    if (seen >= rank) return sorted[i];
  }
  return sorted.at(-1);
}

function bounds(differences) {
  const sorted = rising(differences);
  return [quantile(sorted, 0.025), quantile(sorted, 0.975)];
}

/**
 * The 95 % bootstrap interval of `quantile(b) - quantile(a)`.
 * @param {boolean} paired a[i] and b[i] are of the same clip, and are drawn together
 */
export function interval(a, b, q, paired, random) {
  const [orderA, orderB] = [a, b].map((values) =>
    [...values.keys()].sort((i, j) => values[i] - values[j]),
  );
  const [sortedA, sortedB] = [a, b].map((values) => rising(values));
  const [rankA, rankB] = [orderA, orderB].map((order) => {
    const rank = new Uint32Array(order.length);
    order.forEach((i, at) => {
      rank[i] = at;
    });
    return rank;
  });
  const differences = new Float64Array(RESAMPLES);
  for (let n = 0; n < RESAMPLES; n += 1) {
    const countsA = new Uint32Array(a.length);
    const countsB = new Uint32Array(b.length);
    for (let k = 0; k < a.length; k += 1) {
      const i = Math.floor(random() * a.length);
      countsA[rankA[i]] += 1;
      if (paired) countsB[rankB[i]] += 1;
    }
    if (!paired)
      for (let k = 0; k < b.length; k += 1) countsB[rankB[Math.floor(random() * b.length)]] += 1;
    differences[n] = quantileOfCounts(sortedB, countsB, q) - quantileOfCounts(sortedA, countsA, q);
  }
  return bounds(differences);
}

/** Turns of the same clips, the first with the first and so on: [[a, b], …]. */
export function pairsOf(turnsA, turnsB) {
  const byClip = new Map();
  for (const turn of turnsA) {
    const clip = clipOf(turn);
    if (clip) byClip.set(clip, [...(byClip.get(clip) ?? []), turn]);
  }
  const pairs = [];
  for (const turn of turnsB) {
    const partner = byClip.get(clipOf(turn))?.shift();
    if (partner) pairs.push([partner, turn]);
  }
  return pairs;
}

const valueOf = (turn, stage) => turn.values.find(([name]) => name === stage)?.[1] ?? null;

/**
 * @param {object[]} a turns of one run, @param {object[]} b of the other; those left out of
 *   percentiles are left out here
 * @returns {Promise<{pairs: number, rows: object[]}>} a row a stage: {stage, nA, nB, figures}, and in
 *   figures for each quantile {q, a, b, change, low, high}; null where there are too few
 */
export async function compare(a, b) {
  const countedA = a.filter((turn) => turn.counts);
  const countedB = b.filter((turn) => turn.counts);
  const pairs = pairsOf(countedA, countedB);
  const isPaired =
    pairs.length >= PAIRS_NEEDED && 2 * pairs.length >= Math.min(countedA.length, countedB.length);
  const couples = isPaired ? pairs : null;
  const names = inOrder(
    new Set([...countedA, ...countedB].flatMap((turn) => turn.values.map(([name]) => name))),
  );
  const random = randomFrom(SEED);
  const rows = [];
  for (const stage of names) {
    const [valuesA, valuesB] = samples(countedA, countedB, couples, stage);
    rows.push({
      stage,
      nA: valuesA.length,
      nB: valuesB.length,
      figures: QUANTILES.map((q) => figure(valuesA, valuesB, q, isPaired, random)),
    });
    await new Promise((resolve) => setTimeout(resolve)); // the page stays alive meanwhile
  }
  return { pairs: isPaired ? pairs.length : 0, rows };
}

function samples(turnsA, turnsB, couples, stage) {
  const known = (value) => value !== null;
  if (couples) {
    const both = couples
      .map(([a, b]) => [valueOf(a, stage), valueOf(b, stage)])
      .filter((pair) => pair.every(known))
      .slice(-USED_MAX);
    return [both.map(([a]) => a), both.map(([, b]) => b)];
  }
  return [turnsA, turnsB].map((turns) =>
    turns
      .map((turn) => valueOf(turn, stage))
      .filter(known)
      .slice(-USED_MAX),
  );
}

function figure(a, b, q, paired, random) {
  if (Math.min(a.length, b.length) < NEEDED.get(q)) return null;
  const [before, after] = [a, b].map((values) => quantile(rising(values), q));
  const [low, high] = interval(a, b, q, paired, random);
  return { q, a: before, b: after, change: after - before, low, high };
}

/** Settings that differ: [[name, a, b], …], by name. */
export function settingsDiff(a, b) {
  const names = new Set([...Object.keys(a ?? {}), ...Object.keys(b ?? {})]);
  const text = (value) => (value === undefined ? "not set" : JSON.stringify(value));
  return [...names]
    .sort()
    .map((name) => [name, text(a?.[name]), text(b?.[name])])
    .filter(([, x, y]) => x !== y);
}
