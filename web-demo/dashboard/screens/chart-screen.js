// What the screens of charts share: snapshots, one a second, as lines.

import { el, setText } from "../dom.js";
import { LineChart } from "../charts/line.js";

const POINTS = 240;

/**
 * Snapshots of the window, as the newest of each of at most `POINTS` groups. Groups begin at fixed
 * times, so that a chart does not flicker as it moves on.
 */
export function thinned(store, windowMs) {
  const lengthMs = Math.max(1_000, Math.ceil(windowMs / POINTS / 1_000) * 1_000);
  const groups = new Map();
  for (const snapshot of store.snapshots) {
    if (snapshot.atMs < store.nowMs - windowMs) continue;
    const key = lengthMs === 1_000 ? snapshot.atMs : Math.floor(snapshot.atMs / lengthMs);
    const group = groups.get(key);
    if (group) group.push(snapshot);
    else groups.set(key, [snapshot]);
  }
  return [...groups.values()].map((group) => ({ ...group.at(-1), group }));
}

export const seconds = (snapshots) => snapshots.map(({ atMs }) => atMs / 1_000);
export const each = (snapshots, read) => snapshots.map((snapshot) => read(snapshot) ?? null);

/** The worst of each group: thinning must not hide a peak. */
export function peaks(snapshots, read) {
  return snapshots.map(({ group }) => {
    const known = group.map(read).filter((value) => value != null);
    return known.length ? Math.max(...known) : null;
  });
}

/** What a total grew by a second; a server that began again counts from 0. */
export function rates(snapshots, read) {
  return snapshots.map((snapshot, i) => {
    if (i === 0) return null;
    const [now, before] = [read(snapshot), read(snapshots[i - 1])];
    const s = (snapshot.atMs - snapshots[i - 1].atMs) / 1_000;
    return now == null || before == null || s <= 0 ? null : Math.max(0, now - before) / s;
  });
}

function numbersOf(pairs) {
  const nodes = pairs.map(([name]) => el("dd"));
  const node = el(
    "dl",
    { class: "facts" },
    ...pairs.flatMap(([name], i) => [el("dt", {}, name), nodes[i]]),
  );
  return {
    node,
    draw: (...args) =>
      pairs.forEach(([, read], i) => setText(nodes[i], String(read(...args) ?? "–"))),
  };
}

/** A screen of small charts with totals below. */
export class ChartScreen {
  constructor(app, id, title, about) {
    this.app = app;
    this.grid = el("div", { class: "multiples" });
    this.node = el(
      "section",
      { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, title),
      el("p", { class: "small" }, about),
      this.grid,
    );
  }

  chart(options) {
    const chart = new LineChart(options);
    this.grid.append(chart.node);
    return chart;
  }

  facts(pairs) {
    const facts = numbersOf(pairs);
    this.node.append(el("section", { class: "card" }, el("h3", {}, "Since the start"), facts.node));
    return facts;
  }
}
