// Small pictures inside tables: a turn as a stacked bar, a session's headroom as a line.

import { el, setAttribute, svg } from "../dom.js";
import { inMs } from "../units.js";
import { inOrder, stageOf } from "../stages.js";

const LINE_W = 80;
const LINE_H = 22;
const SHOWN_MS = 0.05;

/** What a turn's stages took, in order: [name, ms]. */
export function waitsOf(turn) {
  const shown = [...turn.stages].filter(
    ([name, ms]) => ms >= SHOWN_MS && name !== "voice" && name !== "playout",
  );
  const byName = new Map(shown);
  return inOrder(byName.keys()).map((name) => [name, byName.get(name)]);
}

/** A turn's waits side by side. `scaleMs`: what the whole width stands for; null: the turn's own sum. */
export function miniBar(turn, scaleMs = null) {
  const waits = waitsOf(turn);
  const sum = waits.reduce((total, [, ms]) => total + ms, 0);
  const whole = scaleMs ?? sum;
  const segments = waits.map(([name, ms]) =>
    el("span", {
      class: stageOf(name).row,
      style: { width: `${(100 * ms) / whole}%` },
      title: `${name} ${inMs(ms)}`,
    }),
  );
  const label = waits.map(([name, ms]) => `${name} ${inMs(ms)}`).join(", ");
  return el(
    "span",
    { class: "mini-bar", role: "img", "aria-label": label || "no stage was measured" },
    ...segments,
  );
}

export function sparkline() {
  const path = svg("path", { class: "line" });
  return svg(
    "svg",
    {
      class: "sparkline",
      width: LINE_W,
      height: LINE_H,
      viewBox: `0 0 ${LINE_W} ${LINE_H}`,
      "aria-hidden": "true",
    },
    path,
  );
}

/**
 * Percent of headroom, 0 to 100 as the height; below 0 in the colour of trouble.
 * @returns {boolean} whether there was enough to draw
 */
export function drawSparkline(node, values) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return false;
  const x = (i) => (i / (values.length - 1)) * LINE_W;
  const y = (value) => 2 + (LINE_H - 4) * (1 - Math.max(0, Math.min(100, value)) / 100);
  let path = "";
  values.forEach((value, i) => {
    if (value !== null) path += `${path ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  setAttribute(node.firstElementChild, "d", path);
  setAttribute(node.firstElementChild, "class", known.at(-1) < 0 ? "line bad" : "line");
  return true;
}
