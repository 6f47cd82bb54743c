// Lines over time: uPlot's canvas where it is there, else SVG. Either has a legend with the values
// under the cursor, and the same numbers as a table.

import { el, scroller, setText, svg, table } from "../dom.js";
import { clock } from "../units.js";
import { colour, onScheme } from "./colours.js";
import { syncKey, uPlot } from "./library.js";

const ROWS_SHOWN = 30;
const DEFAULT_HEIGHT = 150;
const MINUTES_FROM_S = 200; // from so long a span on, ticks are whole minutes and shorter
const NARROW = 60; // pixels of the y axis

/**
 * @typedef {{label: string, colour: string, points?: boolean, dash?: boolean, fill?: boolean}} Line
 *   `colour`: the name of a custom property
 */

export class LineChart {
  /**
   * @param {{title: string, format: Function, lines: Line[], height?: number, note?: string,
   *   min?: number, max?: number, guide?: number, onPick?: Function, onSelect?: Function}} options
   *   onPick(i, line) for a click near a line's point i; onSelect(fromS, toS) for a dragged span
   */
  constructor(options) {
    this.options = { height: DEFAULT_HEIGHT, ...options };
    this.data = [[], ...options.lines.map(() => [])];
    this.values = options.lines.map(() => el("b"));
    this.when = el("span", { class: "when" });
    this.stage = el("div", {
      class: "plot",
      role: "img",
      style: { height: `${this.options.height}px` },
    });
    this.tableBox = scroller(`${options.title} as a table`);
    this.details = el(
      "details",
      { class: "as-table", ontoggle: () => this.drawTable() },
      el("summary", {}, "Table", el("span", { class: "unseen" }, ` of ${options.title}`)),
      this.tableBox,
    );
    const legend = options.lines.map((line, i) =>
      el(
        "span",
        { class: "key" },
        el("i", {
          class: line.points ? "dot" : "dash",
          style: { "--hue": `var(--${line.colour})` },
        }),
        `${line.label} `,
        this.values[i],
      ),
    );
    this.node = el(
      "figure",
      { class: "chart" },
      el(
        "figcaption",
        {},
        el("span", { class: "chart-title" }, options.title),
        options.note ? el("span", { class: "small" }, options.note) : null,
      ),
      el("div", { class: "legend" }, ...legend, this.when),
      this.stage,
      this.details,
    );
    this.painter = null;
    this.size = new ResizeObserver(() => this.resize());
    this.size.observe(this.stage);
    onScheme(() => this.repaint());
  }

  repaint() {
    this.painter?.destroy();
    this.painter = null;
    this.paint();
  }

  resize() {
    const width = Math.floor(this.stage.clientWidth);
    if (width && this.painter?.width !== width) this.repaint();
  }

  /** @param {number[]} atS seconds since 1970, rising; @param {(number|null)[][]} values a list a line */
  update(atS, values) {
    this.data = [atS, ...values];
    this.paint();
  }

  paint() {
    const width = Math.floor(this.stage.clientWidth);
    if (!width) return; // not on the screen
    const Painter = uPlot() ? CanvasPainter : SvgPainter;
    if (!this.painter) this.painter = new Painter(this, width);
    else this.painter.update();
    this.read(null);
    if (this.details.open) this.drawTable();
  }

  /** The legend's values at point `i`; null: the newest of each line. */
  read(i) {
    const { lines, format } = this.options;
    lines.forEach((_, line) => {
      const values = this.data[line + 1];
      const value = i === null ? values.findLast((v) => v != null) : values[i];
      setText(this.values[line], format(value));
    });
    setText(this.when, i === null ? "" : clock(this.data[0][i] * 1_000));
    if (i === null) {
      const said = lines.map((line, n) => `${line.label} ${this.values[n].textContent}`).join(", ");
      this.stage.setAttribute(
        "aria-label",
        `${this.options.title}, newest: ${said}. The numbers are in the table below.`,
      );
    }
  }

  drawTable() {
    if (!this.details.open) return;
    const { lines, format, title } = this.options;
    const [at, ...values] = this.data;
    const stride = Math.max(1, Math.ceil(at.length / ROWS_SHOWN));
    const rows = at
      .map((s, i) => [s, i])
      .reverse()
      .filter((_, n) => n % stride === 0)
      .map(([s, i]) => [clock(s * 1_000), ...values.map((line) => format(line[i]))]);
    const columns = [["Time"], ...lines.map((line) => [line.label, "number"])];
    this.tableBox.replaceChildren(table(title, columns, rows));
  }

  /** The line whose value at `i` is drawn nearest to a height in pixels. */
  nearest(i, yOf, y) {
    let best = null;
    this.options.lines.forEach((_, line) => {
      const value = this.data[line + 1][i];
      if (value == null) return;
      const distance = Math.abs(yOf(value) - y);
      if (best === null || distance < best.distance) best = { line, distance };
    });
    return best?.line ?? null;
  }

  range() {
    const { min, max, guide } = this.options;
    let low = Infinity;
    let high = -Infinity;
    for (const line of this.data.slice(1)) {
      for (const value of line) {
        if (value == null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (guide != null) {
      low = Math.min(low, guide);
      high = Math.max(high, guide);
    }
    low = Math.min(low, min ?? 0);
    high = Math.max(high, max ?? low);
    if (!Number.isFinite(high) || high <= low)
      return [Number.isFinite(low) ? low : 0, (Number.isFinite(low) ? low : 0) + 1];
    return [low, low + (high - low) * 1.08];
  }
}

class CanvasPainter {
  constructor(chart, width) {
    this.chart = chart;
    this.width = width;
    const { options } = chart;
    const axis = {
      stroke: colour("soft"),
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const series = options.lines.map((line) => ({
      label: line.label,
      stroke: colour(line.colour),
      width: 1.5,
      spanGaps: false,
      dash: line.dash ? [4, 4] : undefined,
      paths: line.points ? () => null : undefined,
      points: line.points
        ? { show: true, size: 4, fill: colour(line.colour), width: 0 }
        : { show: false },
      fill: line.fill ? `color-mix(in srgb, ${colour(line.colour)} 22%, transparent)` : undefined,
    }));
    let selecting = false;
    this.plot = new (uPlot())(
      {
        width,
        height: options.height,
        legend: { show: false },
        padding: [6, 22, 0, 0],
        cursor: {
          y: false,
          points: { size: 6 },
          drag: { x: Boolean(options.onSelect), y: false, setScale: false },
          sync: { key: syncKey(), setSeries: false },
        },
        scales: { x: { time: true }, y: { range: () => chart.range() } },
        axes: [
          {
            ...axis,
            size: 22,
            space: (_, __, from, to) => (to - from > MINUTES_FROM_S ? 42 : 62),
            values: (_, ticks) =>
              ticks.map((s) => (s % 60 ? clock(s * 1_000) : clock(s * 1_000).slice(0, 5))),
          },
          {
            ...axis,
            size: NARROW,
            space: 34,
            values: (_, ticks) => ticks.map((value) => options.format(value)),
          },
        ],
        series: [{}, ...series],
        hooks: {
          setCursor: [(plot) => chart.read(plot.cursor.idx ?? null)],
          setSelect: [
            (plot) => {
              const { left, width: w } = plot.select;
              if (w < 3) return;
              selecting = true;
              options.onSelect?.(plot.posToVal(left, "x"), plot.posToVal(left + w, "x"));
            },
          ],
          draw: options.guide == null ? [] : [(plot) => drawGuide(plot, options.guide)],
        },
      },
      chart.data,
      chart.stage,
    );
    this.plot.over.addEventListener("click", () => {
      const { idx, top } = this.plot.cursor;
      if (selecting) selecting = false;
      else if (idx != null && options.onPick) {
        const line = chart.nearest(idx, (value) => this.plot.valToPos(value, "y"), top);
        if (line !== null) options.onPick(idx, line);
      }
    });
  }

  update() {
    this.plot.setData(this.chart.data);
  }

  destroy() {
    this.plot.destroy();
  }
}

function drawGuide(plot, value) {
  const { ctx, bbox } = plot;
  const y = plot.valToPos(value, "y", true);
  ctx.save();
  ctx.strokeStyle = colour("trouble");
  ctx.setLineDash([6, 5]);
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

class SvgPainter {
  constructor(chart, width) {
    this.chart = chart;
    this.width = width;
    this.node = svg("svg", { width, height: chart.options.height, "aria-hidden": "true" });
    chart.stage.append(this.node);
    this.node.addEventListener("click", (event) => this.clicked(event));
    this.node.addEventListener("pointermove", (event) => this.chart.read(this.indexAt(event)));
    this.node.addEventListener("pointerleave", () => this.chart.read(null));
    this.update();
  }

  scales() {
    const { height } = this.chart.options;
    const [at] = this.chart.data;
    const [low, high] = this.chart.range();
    const from = at[0] ?? 0;
    const to = at.at(-1) > from ? at.at(-1) : from + 1;
    const w = this.width - NARROW - 6;
    const h = height - 28;
    this.x = (s) => NARROW + ((s - from) / (to - from)) * w;
    this.y = (value) => 6 + h - ((value - low) / (high - low)) * h;
    return { low, high, from, to };
  }

  update() {
    const { low, high, from, to } = this.scales();
    const { height, format, lines, guide } = this.chart.options;
    const nodes = [low, (low + high) / 2, high].flatMap((value) => [
      svg("line", {
        x1: NARROW,
        x2: this.width - 6,
        y1: this.y(value),
        y2: this.y(value),
        class: "grid",
      }),
      svg("text", { x: NARROW - 6, y: this.y(value) + 4, "text-anchor": "end" }, format(value)),
    ]);
    nodes.push(
      svg("text", { x: NARROW, y: height - 4 }, clock(from * 1_000)),
      svg("text", { x: this.width - 6, y: height - 4, "text-anchor": "end" }, clock(to * 1_000)),
    );
    if (guide != null)
      nodes.push(
        svg("line", {
          x1: NARROW,
          x2: this.width - 6,
          y1: this.y(guide),
          y2: this.y(guide),
          class: "guide",
        }),
      );
    lines.forEach((line, i) => nodes.push(...this.drawLine(line, this.chart.data[i + 1])));
    this.node.replaceChildren(...nodes);
  }

  drawLine(line, values) {
    const [at] = this.chart.data;
    const hue = { "--hue": `var(--${line.colour})` };
    if (line.points) {
      return at.flatMap((s, i) =>
        values[i] == null
          ? []
          : [
              svg("circle", {
                cx: this.x(s),
                cy: this.y(values[i]),
                r: 2,
                class: "point",
                style: hue,
              }),
            ],
      );
    }
    let path = "";
    let isDrawing = false;
    at.forEach((s, i) => {
      if (values[i] != null)
        path += `${isDrawing ? "L" : "M"}${this.x(s).toFixed(1)} ${this.y(values[i]).toFixed(1)}`;
      isDrawing = values[i] != null;
    });
    return path
      ? [svg("path", { d: path, class: line.dash ? "line dashed" : "line", style: hue })]
      : [];
  }

  indexAt({ offsetX }) {
    const [at] = this.chart.data;
    let best = null;
    at.forEach((s, i) => {
      if (best === null || Math.abs(this.x(s) - offsetX) < Math.abs(this.x(at[best]) - offsetX))
        best = i;
    });
    return best;
  }

  clicked(event) {
    const i = this.indexAt(event);
    const line = i === null ? null : this.chart.nearest(i, this.y, event.offsetY);
    if (line !== null) this.chart.options.onPick?.(i, line);
  }

  destroy() {
    this.node.remove();
  }
}
