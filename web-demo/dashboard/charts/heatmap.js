// How many turns took how long, over time: a canvas of cells, darker for more. The percentile table
// beside it leads to the same turns without a mouse.

import { el } from "../dom.js";
import { boundsOf, bucketOf } from "../data/sketch.js";
import { clock, inMs, many } from "../units.js";
import { colour, onScheme } from "./colours.js";

const ROWS = 20;
const AXIS_PX = 60;
const FOOT_PX = 20;
const HEIGHT_PX = 240;

export class Heatmap {
  /** @param {{title: string, onPick: Function}} options onPick({fromS, toS, fromMs, toMs, what}) */
  constructor({ title, onPick }) {
    this.title = title;
    this.onPick = onPick;
    this.columns = [];
    this.canvas = el("canvas", {
      role: "img",
      class: "heatmap",
      style: { height: `${HEIGHT_PX}px` },
    });
    this.hint = el("p", { class: "small", "aria-hidden": "true" }, "Click a cell for its turns.");
    this.node = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, title)),
      this.canvas,
      this.hint,
    );
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    this.canvas.addEventListener("pointermove", (event) => this.hovered(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onScheme(() => this.draw());
  }

  /** @param {{at: number, sketch: Sketch}[]} columns of equal length; `at` is their end in s */
  update(columns) {
    this.columns = columns;
    const keys = columns.flatMap(({ sketch }) => [...sketch.buckets.keys()]);
    const least = keys.length ? Math.max(0, Math.min(...keys)) : bucketOf(100);
    const most = keys.length ? Math.max(...keys) : bucketOf(1_000);
    // A row holds a whole number of buckets, so that none is cut in two.
    this.perRow = Math.max(1, Math.ceil((most - least + 1) / ROWS));
    this.least = least;
    const total = columns.reduce((sum, { sketch }) => sum + sketch.n, 0);
    this.canvas.setAttribute(
      "aria-label",
      `${this.title}: ${many(total, "turn")} by time and latency, from ${inMs(boundsOf(least)[0])} to ${inMs(boundsOf(most)[1])}.`,
    );
    this.draw();
  }

  cells() {
    return this.columns.map(({ sketch }) => {
      const rows = new Map();
      for (const [key, n] of sketch.buckets) {
        const row = Math.max(0, Math.floor((key - this.least) / this.perRow));
        rows.set(row, (rows.get(row) ?? 0) + n);
      }
      return rows;
    });
  }

  edgeMs(row) {
    return boundsOf(this.least + row * this.perRow)[0];
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.columns.length) return;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(HEIGHT_PX * scale);
    const ctx = this.canvas.getContext("2d");
    ctx.scale(scale, scale);
    const cells = this.cells();
    const most = Math.max(1, ...cells.flatMap((rows) => [...rows.values()]));
    const w = (width - AXIS_PX) / this.columns.length;
    const h = (HEIGHT_PX - FOOT_PX) / ROWS;
    ctx.fillStyle = colour("accent");
    cells.forEach((rows, x) => {
      for (const [row, n] of rows) {
        ctx.globalAlpha = 0.18 + 0.82 * Math.sqrt(n / most);
        ctx.fillRect(
          AXIS_PX + x * w + 0.5,
          HEIGHT_PX - FOOT_PX - (row + 1) * h + 0.5,
          Math.max(1, w - 1),
          Math.max(1, h - 1),
        );
      }
    });
    ctx.globalAlpha = 1;
    ctx.fillStyle = colour("soft");
    ctx.font = "11px system-ui, sans-serif";
    ctx.textAlign = "right";
    for (let row = 0; row <= ROWS; row += 5) {
      ctx.fillText(
        inMs(this.edgeMs(row)),
        AXIS_PX - 6,
        Math.max(9, HEIGHT_PX - FOOT_PX - row * h + 4),
      );
    }
    ctx.textAlign = "left";
    ctx.fillText(
      clock(2_000 * this.columns[0].at - 1_000 * (this.columns[1]?.at ?? this.columns[0].at)),
      AXIS_PX,
      HEIGHT_PX - 5,
    );
    ctx.textAlign = "right";
    ctx.fillText(clock(this.columns.at(-1).at * 1_000), width, HEIGHT_PX - 5);
  }

  at({ offsetX, offsetY }) {
    const w = (this.canvas.clientWidth - AXIS_PX) / this.columns.length;
    const h = (HEIGHT_PX - FOOT_PX) / ROWS;
    const column = Math.floor((offsetX - AXIS_PX) / w);
    const row = Math.floor((HEIGHT_PX - FOOT_PX - offsetY) / h);
    const n = this.cells()[column]?.get(row);
    if (!n) return null;
    const toS = this.columns[column].at;
    const [fromMs, toMs] = [this.edgeMs(row), this.edgeMs(row + 1)];
    const what = `${many(n, "turn")} of ${inMs(fromMs)} to ${inMs(toMs)}, until ${clock(toS * 1_000)}`;
    return { fromS: toS - (this.columns[1].at - this.columns[0].at), toS, fromMs, toMs, what };
  }

  hovered(event) {
    const found = this.at(event);
    this.canvas.classList.toggle("pickable", found !== null);
    this.hint.textContent = found ? found.what : "Click a cell for its turns.";
  }

  clicked(event) {
    const found = this.at(event);
    if (found) this.onPick(found);
  }
}
